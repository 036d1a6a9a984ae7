# The Debian package: `cpack --config build/CPackConfig.cmake` makes it of what is built. The Python package is not in it:
# it belongs into the Python that runs the engine, where pip puts it, together with a program of the same version.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mxfp4-pack)
set(CPACK_PACKAGE_VENDOR mxfp4-pack)
set(CPACK_PACKAGE_CONTACT "mxfp4-pack maintainers <mxfp4-pack@packages.debian.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "packs MXFP4 experts into the bytes of inference engines")
set(CPACK_PACKAGE_DESCRIPTION "Turns published MXFP4 mixture-of-experts checkpoints into the exact bytes that kernels of
vLLM, SGLang and others read, once and offline, and proves them right. Contains the program mxfp4-pack, the library
libmxfp4_pack with its headers, manual pages and completions.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Folders of the package are 755, whatever the builder's umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_VERBATIM_VARIABLES ON)

set(doc ${CMAKE_INSTALL_DATADIR}/doc/mxfp4-pack)
set(changes ${PROJECT_BINARY_DIR}/man/changelog.gz)
add_custom_command(OUTPUT ${changes} COMMAND ${GZIP} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > ${changes}
  DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md VERBATIM)
add_custom_target(changelog ALL DEPENDS ${changes})
install(FILES ${changes} ${PROJECT_SOURCE_DIR}/man/copyright DESTINATION ${doc} COMPONENT program)
include(CPack)
