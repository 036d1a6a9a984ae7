# The Debian package: `cpack --config build/CPackConfig.cmake` makes it of what is built. The Python package is not in it:
# it belongs into the Python that runs the engine, where pip puts it, together with a program of the same version.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mxfp4-pack)
string(REPLACE - "~" CPACK_PACKAGE_VERSION ${MXFP4_VERSION})  # Debian sorts 1.0.0~rc1 before 1.0.0
set(CPACK_PACKAGE_VENDOR mxfp4-pack)
set(CPACK_PACKAGE_CONTACT "mxfp4-pack maintainers <maintainers@mxfp4-pack.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "packs MXFP4 experts into the bytes of inference engines")
set(CPACK_PACKAGE_DESCRIPTION "Turns published MXFP4 mixture-of-experts checkpoints into the exact
bytes that kernels of vLLM, SGLang and others read, once and offline, and
proves them right. Contains the program mxfp4-pack, the library
libmxfp4_pack with its headers, manual pages and completions.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libcurl4 | libcurl4t64, ca-certificates")  # loaded for remote sources
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Folders of the package are 755, whatever the builder's umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_VERBATIM_VARIABLES ON)

# Debian wants a changelog in a form of its own; it names the project's.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/debian/changelog @ONLY CONTENT
"mxfp4-pack (@CPACK_PACKAGE_VERSION@) unstable; urgency=medium

  * /usr/share/doc/mxfp4-pack/CHANGELOG.md.gz says what is new.

 -- @CPACK_PACKAGE_CONTACT@  Thu, 01 Jan 2026 00:00:00 +0000
")
set(changes ${PROJECT_BINARY_DIR}/debian/CHANGELOG.md.gz ${PROJECT_BINARY_DIR}/debian/changelog.gz)
add_custom_command(OUTPUT ${changes}
  COMMAND ${GZIP} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > CHANGELOG.md.gz
  COMMAND ${GZIP} -9nc changelog > changelog.gz
  DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_BINARY_DIR}/debian/changelog
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/debian VERBATIM)
add_custom_target(changelog ALL DEPENDS ${changes})
install(FILES ${changes} ${PROJECT_SOURCE_DIR}/man/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mxfp4-pack
  COMPONENT package)
include(CPack)
