# What is installed: component `program`, with manual pages and completions, `library` (src/library), and `package`, the
# documents of the Debian package.
install(TARGETS mxfp4-pack COMPONENT program)

# Manual pages are compressed, as distributions want them, and the same at every build.
find_program(GZIP gzip REQUIRED)
foreach(page mxfp4-pack.1 mxfp4-pack-format.5 mxfp4-pack-layout.5 mxfp4-pack-loaders.7 mxfp4-pack-sources.7
             mxfp4-pack-vllm.7 mxfp4-pack-sglang.7 mxfp4-pack-deploy.7)
  cmake_path(GET page EXTENSION LAST_ONLY section)
  string(SUBSTRING ${section} 1 -1 section)
  set(source ${PROJECT_SOURCE_DIR}/man/${page})
  set(compressed ${PROJECT_BINARY_DIR}/man/${page}.gz)
  add_custom_command(OUTPUT ${compressed} COMMAND ${GZIP} -9nc ${source} > ${compressed} DEPENDS ${source} VERBATIM)
  list(APPEND manual ${compressed})
  install(FILES ${compressed} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT program)
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
add_custom_target(manual ALL DEPENDS ${manual})
