// SPDX-License-Identifier: Apache-2.0
#include "fovea/command.h"

int main(int argc, char** argv) { return fovea::app::run(argc, argv); }
