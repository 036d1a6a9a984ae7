// Refuses forms that no loader or engine reads, and proposes others.
#pragma once

#include <string>

namespace mxfp4 {

struct Backend;
struct Deployment;
struct Model;

/// The choices that a loader reads, as a proposal: "use --backend marlin or humming"; "use --engine vllm==0.33.0
/// --backend marlin". If there are none on the given GPU, the GPUs that have one. Empty if no loader reads the model.
std::string read_instead(const Model& model, const Deployment& to);

/// Throws Error{usage} if no loader of the release reads the backend's form, unless `to` says that none is needed. An
/// engine that only a layout file names has no loader, and is not checked.
void check_loader(const Backend& backend, const Model& model, const Deployment& to);

/// Throws Error{usage} if the engine refuses the shares of that many ranks (share_refusal()).
void check_shares(const Backend& backend, const Model& model, const Deployment& to);

}  // namespace mxfp4
