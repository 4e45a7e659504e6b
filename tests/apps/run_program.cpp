// SPDX-License-Identifier: Apache-2.0
#include "apps/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace fovea::app {
namespace {

using Pipe = std::array<int, 2>;

Pipe make_pipe() {
  Pipe p{};
  if (pipe2(p.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return p;
}

void redirect(const std::string& path, int fd) {
  if (!path.empty()) dup2(open(path.c_str(), O_WRONLY | O_CLOEXEC), fd);
}

[[noreturn]] void become_program(const std::vector<std::string>& args, const RunOptions& options,
                                 const Pipe& in, const Pipe& out, const Pipe& err) {
  dup2(in[0], STDIN_FILENO);
  dup2(out[1], STDOUT_FILENO);
  dup2(err[1], STDERR_FILENO);
  redirect(options.out_to, STDOUT_FILENO);
  redirect(options.err_to, STDERR_FILENO);
  for (const std::string& setting : options.environment) putenv(const_cast<char*>(setting.c_str()));
  std::vector<char*> argv = {const_cast<char*>(FOVEA_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(FOVEA_PROGRAM, argv.data());
  _exit(127);
}

// Reads both ends until they close; interrupts the program if asked.
void collect(pid_t child, int out_fd, int err_fd, const RunOptions& options, Ran& ran) {
  std::array<pollfd, 2> fds = {pollfd{out_fd, POLLIN, 0}, pollfd{err_fd, POLLIN, 0}};
  bool interrupted = options.interrupt_after_ms == 0;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    poll(fds.data(), fds.size(), -1);
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = read(fds[i].fd, buffer.data(), buffer.size());
      if (n <= 0) {
        fds[i].fd = -1;
        continue;
      }
      (i == 0 ? ran.out : ran.err).append(buffer.data(), static_cast<std::size_t>(n));
      if (i == 0 && !interrupted) {
        interrupted = true;
        usleep(static_cast<useconds_t>(options.interrupt_after_ms) * 1000);
        kill(child, SIGINT);
      }
    }
  }
}

}  // namespace

Ran run_program(const std::vector<std::string>& args, const RunOptions& options) {
  const Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become_program(args, options, in, out, err);
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  signal(SIGPIPE, SIG_IGN);
  if (write(in[1], options.input.data(), options.input.size()) < 0 && errno != EPIPE) {
    throw std::runtime_error("the program's input cannot be written");
  }
  close(in[1]);
  Ran ran;
  collect(child, out[0], err[0], options, ran);
  close(out[0]);
  close(err[0]);
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  ran.peak_bytes = std::int64_t{used.ru_maxrss} * 1024;
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

}  // namespace fovea::app
