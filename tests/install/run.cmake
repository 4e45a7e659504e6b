# SPDX-License-Identifier: Apache-2.0
# Run by ctest; the variables are explained by tests/install/CMakeLists.txt, which sets them.
set(prefix ${WORK_DIR}/prefix)
set(consumer_build ${WORK_DIR}/consumer)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
# What fovea uses privately must not be asked of its users: the packages are hidden from them.
run(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${consumer_build} -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DFOVEA_VERSION=${VERSION} "-DCMAKE_CXX_FLAGS=${FLAGS}"
    -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -DEXAMPLES=${EXAMPLES_DIR})
run(${CMAKE_COMMAND} --build ${consumer_build})
run(${consumer_build}/consumer)
run(${consumer_build}/proof)
