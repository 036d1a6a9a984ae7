// Complete checkpoints give no message; missing tensors are reported.
#include "src/models/complete.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/structures.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

static const std::string no_count = "config.json: counts no layers, so missing ones are not noticed\n";

TEST_CASE("published models of other families lack nothing") {
  int64_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testdata() + "/published")) {
    if (entry.path().extension() != ".json") continue;
    ++models;
    INFO(entry.path().filename().string());
    // These pruned and tuned models have no layer of multi-token prediction, although their configs count one.
    const std::string name = entry.path().filename().string();
    const bool has_no_mtp = name == "qwen3.5-moe-reap.json" || name == "qwen3.5-dense.json";
    CHECK(text_of(find_lacks(published(entry.path().string()))) ==
          (has_no_mtp                     ? "MTP: 1 of 1 layer missing; config.json says mtp_num_hidden_layers = 1\n"
           : name == "videochat-tpo.json" ? no_count
                                          : ""));
  }
  CHECK(models >= 90);
}

TEST_CASE("models of synth lack nothing, in their own and in small sizes, with any number of layers", "[long]") {
  int64_t structures = 0;
  for (const SynthModel& model : synth_models())
    for (const bool tiny : {false, true})
      for (const int64_t layers : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 24, 40}) {
        INFO(std::string(model.name) << (tiny ? " --tiny" : "") << " --layers " << layers);
        try {
          CHECK(text_of(find_lacks(synthetic(model.name, layers, tiny))) == "");
          ++structures;
        } catch (const Error& e) {
          CHECK(e.kind == ErrorKind::usage);  // the model needs more layers
        }
      }
  CHECK(structures > 500);
}

TEST_CASE("a config that counts no layers promises none, which is said") {
  Checkpoint ck = synthetic("gpt-oss-20b", 4);
  ck.config.erase("num_hidden_layers");
  CHECK(without(ck, {".layers.3."}) == no_count);
}
