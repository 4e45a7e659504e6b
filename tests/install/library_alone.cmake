# SPDX-License-Identifier: Apache-2.0
# Run by ctest: configures the library without tests and programs, as a project that uses it would, and sees what it builds
# and installs.
file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
                        -DFOVEA_TESTS=OFF -DFOVEA_BENCH=OFF -DFOVEA_APPS=OFF
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR} --target help OUTPUT_VARIABLE targets COMMAND_ERROR_IS_FATAL ANY)
foreach(target fovea fovea_conformance)
  if(NOT targets MATCHES "(^|[ \n])${target}[: \n]")
    message(FATAL_ERROR "${target} is not built:\n${targets}")
  endif()
  file(GLOB_RECURSE scripts ${WORK_DIR}/cmake_install.cmake)
  set(all "")
  foreach(script ${scripts})
    file(READ ${script} text)
    string(APPEND all "${text}")
  endforeach()
  if(NOT all MATCHES "lib${target}\\.a")
    message(FATAL_ERROR "${target} is not installed")
  endif()
endforeach()
