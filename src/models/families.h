// The registry of checkpoint families: one line each, the first that matches is taken.
#pragma once

#include "src/model.h"

namespace mxfp4 {

extern const Family gpt_oss, deepseek_v4;

inline const Family families[] = {gpt_oss, deepseek_v4};

}  // namespace mxfp4
