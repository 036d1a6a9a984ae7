# The model descriptions as C++ string literals, so that the program needs no data files: sets ${synth_models}.
file(GLOB synth_descriptions CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${synth_descriptions})
set(synth_literals "")
foreach(path IN LISTS synth_descriptions)
  cmake_path(GET path STEM LAST_ONLY name)
  file(READ ${path} text)
  string(APPEND synth_literals "    {\"${name}\", R\"json(${text})json\"},\n")
endforeach()
set(synth_models ${PROJECT_BINARY_DIR}/synth_models.cpp)
file(CONFIGURE OUTPUT ${synth_models} @ONLY CONTENT "#include \"src/synth/describe.h\"

namespace mxfp4 {

const std::vector<SynthModel>& synth_models() {
  static const std::vector<SynthModel> models = {
@synth_literals@  };
  return models;
}

}  // namespace mxfp4
")
