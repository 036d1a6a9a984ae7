#include "src/models/complete.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/log.h"

namespace mxfp4 {

namespace {

constexpr const char* mtp_keys[] = {"num_nextn_predict_layers", "mtp_num_hidden_layers"};

int64_t count_in(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  const double count = object.is_object() && it != object.end() && it->is_number() ? it->get<double>() : 0;
  return count == std::floor(count) && count >= 0 && count <= double(most_layers) ? int64_t(count) : 0;
}

bool counts_layers(const Json& object) {
  return std::any_of(std::begin(layer_keys), std::end(layer_keys),
                     [&](const char* key) { return count_in(object, key) > 0; });
}

/// The object that describes the layers below `root`: "thinker.model.layers" -> thinker_config.text_config.
const Json* owner_of(const Json& config, const std::string& root, int depth = 3) {
  if (!config.is_object()) return nullptr;
  const std::string first = root.substr(0, root.find('.'));
  std::vector<std::string> names = {first + "_config", "text_config", "llm_config", "language_config",
                                    "thinker_config"};
  for (const std::string& name : names)
    if (const auto it = config.find(name); depth > 0 && it != config.end() && it->is_object())
      if (const Json* inner = owner_of(*it, root, depth - 1)) return inner;
  return counts_layers(config) ? &config : nullptr;
}

std::string missing_layers(const std::vector<int64_t>& missing) {
  return missing.size() == 1 ? "the layer is missing" : fmt::format("{} layers are missing", missing.size());
}

class Completeness {
 public:
  explicit Completeness(const Checkpoint& ck) : ck_(ck), stacks_(layer_stacks(ck)), main_(main_stack(stacks_)) {
    if (main_) counted_ = counted_layers(ck.config, *main_);
  }

  std::vector<Lack> find() {
    if (!main_) return {};
    if (counted_.layers == 0)
      return {{.where = config_name, .what = "counts no layers, so missing ones are not noticed", .is_certain = false}};
    check_numbers();
    check_mtp();
    check_drafter();
    compare_layers(*main_, counted_.layers, layer_attributes(*counted_.config, counted_.layers), lacks_);
    for (const LayerStack& stack : stacks_) {
      if (&stack != main_) compare_layers(stack, INT64_MAX, {}, lacks_);
      check_experts(stack, lacks_);
    }
    Json config = *counted_.config;
    config["model_type"] = model_type();
    for (const LayerStack& stack : stacks_)
      if (&stack == main_ || stack.is_mtp()) {
        compare_mtp(*main_, counted_.layers, stack, lacks_);
        check_partners(stack, quantization_config(ck_.config) != nullptr, lacks_);
        check_rules(stack, &stack == main_ ? 0 : counted_.layers, config, lacks_);
        count_experts(stack, &stack == main_ ? counted_.layers : 0, config, lacks_);
        check_layer_sizes(stack, config, lacks_);
      }
    check_blocks(*main_, config, lacks_);
    check_router();
    check_vision();
    check_outside();
    check_outside_mtp();
    return std::move(lacks_);
  }

 private:
  /// Of the counted config, or else of the outer one.
  std::string model_type() const {
    const std::string own = config_string(*counted_.config, "model_type");
    return own.empty() ? config_string(ck_.config, "model_type") : own;
  }

  void add(std::string where, std::string what, std::vector<int64_t> layers = {}) {
    lacks_.push_back({std::move(where), std::move(what), main_->root, std::move(layers)});
  }

  /// Layers that the config counts, and gaps in the numbers of others.
  void check_numbers() {
    std::vector<int64_t> missing;
    for (int64_t i = 0; i < counted_.layers; ++i)
      if (!main_->layers.count(i)) missing.push_back(i);
    if (!missing.empty())
      add(fmt::format("{}.{}", main_->root, ranges(missing)),
          fmt::format("{}; config.json says {} = {}", missing_layers(missing), counted_.key, counted_.layers));
    for (const LayerStack& stack : stacks_) {
      constexpr size_t least = 8;  // fewer may be anything that is numbered
      if (&stack == main_ || (stack.layers.size() < least && !stack.is_mtp())) continue;
      std::vector<int64_t> gaps;
      for (int64_t i = 0; i < std::min(stack.layers.rbegin()->first, most_layers); ++i)
        if (!stack.layers.count(i)) gaps.push_back(i);
      if (!gaps.empty() && gaps.size() < stack.layers.size())
        add(fmt::format("{}.{}", stack.root, ranges(gaps)),
            fmt::format("{}; there is a layer {}", missing_layers(gaps), stack.layers.rbegin()->first));
    }
  }

  void check_mtp() {
    if (counted_.mtp == 0) return;
    int64_t found = std::count_if(main_->layers.begin(), main_->layers.end(),
                                  [&](const auto& layer) { return layer.first >= counted_.layers; });
    for (const LayerStack& stack : stacks_)
      if (stack.is_mtp()) found = std::max(found, int64_t(stack.layers.size()));
    if (found < counted_.mtp)
      add("MTP", fmt::format("{} of {} missing; config.json says {} = {}", counted_.mtp - found,
                             counted(counted_.mtp, "layer"), counted_.mtp_key, counted_.mtp));
  }

  /// The first stage of a DSpark drafter reads the main layers, and its last stage has the head.
  void check_drafter() {
    for (const LayerStack& stack : stacks_) {
      if (!stack.is_mtp()) continue;
      const auto has = [&](const LayerParts& parts, const std::string& module) {
        const auto part = parts.lower_bound(module + ".");
        return part != parts.end() && part->first.starts_with(module + ".");
      };
      const auto &first = *stack.layers.begin(), &last = *stack.layers.rbegin();
      const bool reads = has(first.second, "main_proj"), heads = has(last.second, "markov_head");
      if (reads && !heads)
        add(fmt::format("{}.{}.markov_head", stack.root, last.first),
            fmt::format("missing; {}.{} has main_proj, so the last stage has a head", stack.root, first.first));
      if (heads && !reads)
        add(fmt::format("{}.{}.main_proj", stack.root, first.first),
            fmt::format("missing; {}.{} has markov_head, so the first stage has it", stack.root, last.first));
    }
  }

  /// A layer with experts has something that chooses among them.
  void check_router() {
    std::vector<int64_t> without;
    for (const auto& [index, parts] : main_->layers) {
      const auto any = [&, &parts = parts](auto test) {
        return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return test(part.first); });
      };
      const bool experts =
          any([](const std::string& n) { return n.find("experts.") != n.npos && n.find("shared") == n.npos; });
      const bool router = any([](const std::string& n) {
        const bool of_expert = n.find("experts.") != n.npos;
        return !of_expert && contains_any(n, {".gate.", "router", "gate_weight", "moe_gate", "switch", "classifier"});
      });
      if (experts && !router && !has_row_of_each_expert(parts) && !lacks_gate(index)) without.push_back(index);
    }
    if (!without.empty())
      add(fmt::format("{}.{}", main_->root, ranges(without)),
          fmt::format("experts without a router in {}", counted(without.size(), "layer")), without);
  }

  /// Whether a matrix beside the experts may choose among them, whatever its name is.
  static bool has_row_of_each_expert(const LayerParts& parts) {
    int64_t experts = 0;
    for (const auto& [name, part] : parts)
      if (name.find("experts.") != name.npos && name.find("shared") == name.npos)
        experts =
            std::max({experts, int64_t(part.experts.size()), part.first->shape.size() > 2 ? part.first->shape[0] : 0});
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
      const auto& shape = part.second.first->shape;
      return shape.size() == 2 && shape[0] == experts &&
             !contains_any(part.first, {"experts.", "attn", "attention", "shared", "norm", "_proj."});
    });
  }

  /// Whether it was said of this layer.
  bool lacks_gate(int64_t layer) const {
    return std::any_of(lacks_.begin(), lacks_.end(), [&](const Lack& l) {
      return l.is_certain && l.stack == main_->root && std::count(l.layers.begin(), l.layers.end(), layer) > 0 &&
             std::any_of(l.parts.begin(), l.parts.end(), [](const std::string& part) {
               return contains_any(part, {"gate", "router"});
             });
    });
  }

  void check_vision() {
    const auto vision = ck_.config.find("vision_config");
    if (!ck_.config.is_object() || vision == ck_.config.end()) return;
    const LayerStack* tower = nullptr;
    int64_t towers = 0;
    for (const LayerStack& s : stacks_)
      if (&s != main_ && s.layers.size() >= 8 && contains_any(s.root, {"vis", "vit"})) tower = &s, ++towers;
    if (towers != 1) return;
    for (const char* key : {"depth", "num_hidden_layers", "vt_num_hidden_layers"}) {
      const int64_t says = count_in(*vision, key), has = int64_t(tower->layers.size());
      if (says > has && tower->layers.rbegin()->first + 1 == has)
        add(fmt::format("{}.{}", tower->root,
                        has == says - 1 ? fmt::format("{}", has) : fmt::format("{}-{}", has, says - 1)),
            fmt::format("{} missing; config.json says vision_config.{} = {}", counted(says - has, "layer"), key, says));
    }
  }

  /// Tensors beside the layers: "model.norm.weight" for layers "model.layers".
  void check_outside() {
    const size_t dot = main_->root.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : main_->root.substr(0, dot + 1);
    std::string shared = parent;  // "model." of "model.decoder.": an encoder may have the same embedding
    for (const std::string part : {"encoder.", "decoder."})
      if (shared.ends_with(part)) shared.resize(shared.size() - part.size());
    bool embedding = false, norm = false, head = false;
    for (const Tensor& t : ck_.tensors) {
      if (is_in_layer(t.name)) continue;
      const std::string beside = first_part(t.name, parent), above = first_part(t.name, shared);
      if (t.name.ends_with(".bias")) continue;
      const bool is_input = contains_any(beside, {"emb", "wte"}) || contains_any(above, {"emb", "wte", "shared"});
      embedding = embedding || (is_input && !contains_any(beside, {"unemb"}));
      norm = norm || contains_any(beside, {"norm", "ln_f"});
      head = head || contains_any("." + t.name, {".lm_head", ".head.", ".output.", ".output_layer.", ".embed_out",
                                                 ".unembed", ".score.", ".ff_out."});
    }
    const bool has_streams = has_hyper_connections();
    for (const char* name : {"hc_head_base", "hc_head_fn", "hc_head_scale"})
      if (has_streams && !std::any_of(ck_.tensors.begin(), ck_.tensors.end(), [&](const Tensor& t) {
            return t.name.starts_with(parent) && t.name.substr(parent.size()).starts_with(name);
          }))
        add(parent + name, "missing, and layers have hyper-connections");
    check_outer_sizes(ck_, parent, *counted_.config, lacks_);
    if (!embedding) add(parent + "embed*", "the embedding is missing");
    if (!norm) add(parent + "norm", "the norm behind the last layer is missing");
    if (!head && generates() && !is_tied())
      add("lm_head", "the output head is missing; config.json does not tie it to the embedding");
  }

  /// Tensors beside Qwen's layers of multi-token prediction, "mtp.layers".
  void check_outside_mtp() {
    for (const LayerStack& stack : stacks_)
      if (stack.root.ends_with("mtp.layers") && model_type().starts_with("qwen3"))
        for (const char* name : {"fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"})
          if (const std::string module = stack.root.substr(0, stack.root.size() - 6) + name;
              ck_.first_from(module + ".") == ck_.first_from(module + "/"))
            add(module, "missing beside " + stack.root);
  }

  /// Of DeepSeek-V4: the head joins the streams that layers keep apart. V4.1 does so without tensors.
  bool has_hyper_connections() const {
    const std::string type = model_type();
    return main_->layers.begin()->second.count("hc_attn_fn") && type.starts_with("deepseek_v4") &&
           !type.starts_with("deepseek_v41");
  }

  /// "embed_tokens" of "model.embed_tokens.weight" behind "model."; empty for other names and parts of other models.
  static std::string first_part(const std::string& name, const std::string& parent) {
    if (!name.starts_with(parent)) return "";
    const std::string first = name.substr(parent.size(), name.find('.', parent.size()) - parent.size());
    return contains_any(first, {"vis", "patch", "pos", "image", "audio", "mtp"}) ? "" : first;
  }

  /// Else the head gives something other than tokens.
  bool generates() const {
    const auto it = ck_.config.find("architectures");
    if (it == ck_.config.end() || !it->is_array() || it->empty() || !it->front().is_string()) return true;
    return contains_any(it->front().get_ref<const std::string&>(),
                        {"CausalLM", "Conditional", "LMHead", "Chat", "TokenClass"});
  }

  /// A config without the key may mean either, for model types that are not known to have a head of their own.
  bool is_tied() const {
    bool known = false;
    for (const Json* config : {&ck_.config, counted_.config})
      if (const auto it = config->find("tie_word_embeddings"); it != config->end() && it->is_boolean()) {
        if (it->get<bool>()) return true;
        known = true;
      }
    const std::string type = model_type();
    for (const char* untied : {"gpt_oss", "deepseek", "kimi", "mimo", "glm", "minimax", "qwen", "bailing", "llama",
                               "mistral", "mixtral", "phi3", "olmoe", "longcat", "inkling"})
      known = known || type.starts_with(untied);
    return !known;
  }

  const Checkpoint& ck_;
  const std::vector<LayerStack> stacks_;
  const LayerStack* main_;
  CountedLayers counted_;
  std::vector<Lack> lacks_;
};

}  // namespace

CountedLayers counted_layers(const Json& config, const LayerStack& main) {
  CountedLayers out;
  out.config = owner_of(config, main.root);
  if (!out.config) return out;
  int64_t found = 0;  // layers 0, 1, 2 .. that are there
  while (main.layers.count(found)) ++found;
  for (const char* key : layer_keys)
    if (const int64_t n = count_in(*out.config, key); n > 0 && (out.layers == 0 || n == found)) {
      out.layers = n;
      out.key = key;
    }
  for (const Json* owner : {out.config, &config})
    for (const char* key : mtp_keys)
      if (const int64_t n = count_in(*owner, key); n > 0 && out.mtp == 0) {
        out.mtp = n;
        out.mtp_key = key;
      }
  return out;
}

namespace {

/// Whether an error was said of this. Whoever reads MXFP4 experts says which codes, scales and routers they lack.
bool is_said(const Problems& problems, const Lack& l) {
  const auto is_about = [&](const std::string& name) {
    if (contains_any(name, {"input_", "bias"})) return problems.is_about(name);
    constexpr std::string_view experts = ".experts";
    const size_t at = name.find(experts);
    const size_t end = at == name.npos ? at : l.layers.empty() ? name.rfind('.') : at + experts.size();
    return problems.is_about(name.substr(0, std::min(end, name.find(".*"))));
  };
  if (l.layers.empty()) return is_about(l.where);
  return std::all_of(l.layers.begin(), l.layers.end(), [&](int64_t layer) {
    const std::string name = fmt::format("{}.{}", l.stack, layer);
    if (l.parts.empty()) return problems.is_about(name);
    return std::all_of(l.parts.begin(), l.parts.end(), [&](const std::string& part) {
      const bool is_router = contains_any("." + part, {".gate", ".router"}) && !contains_any(part, {"_proj", "bias"});
      return is_router ? problems.is_about(name) : is_about(name + "." + part);
    });
  });
}

}  // namespace

std::vector<Lack> find_lacks(const Checkpoint& ck) { return Completeness(ck).find(); }

bool check_complete(const Checkpoint& ck, bool allowed, Problems& problems) {
  std::vector<Lack> lacks = find_lacks(ck);
  check_small_files(ck, lacks, problems);
  std::erase_if(lacks, [&](const Lack& l) { return is_said(problems, l); });
  for (const Lack& l : lacks)
    if (allowed || !l.is_certain)
      problems.warn(l.where, "{}", l.what);
    else
      problems.error(l.where, "{}", l.what);
  const bool lacks_any = std::any_of(lacks.begin(), lacks.end(), [](const Lack& l) { return l.is_certain; });
  if (lacks_any && !allowed)
    problems.error(ck.dir, "incomplete; fetch what is missing, or give --allow-incomplete to convert it");
  return lacks_any;
}

}  // namespace mxfp4
