// SPDX-License-Identifier: Apache-2.0
// Everything that can be refused or go wrong, with all facts.
//
// A configuration that cannot be served is a value first (Support: a list of Reason); constructors
// throw the same list as a ConfigError. A wrong call throws an InputError before anything is
// written. Error is a mix-in without a standard base, so that each class below has exactly one, and
// `catch (const std::exception&)` sees all of them.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea {

// One fact that stands against a request.
struct Reason {
  std::string field;      // the name of the option or argument
  std::string wanted;     // what was asked for
  std::string supported;  // what would be accepted
  std::string way_out;    // what the caller can do about it; may be empty
  // Stable first words of the text of an unsupported configuration ("head_size not supported");
  // empty for values that are wrong by themselves.
  std::string phrase = {};
  friend bool operator==(const Reason&, const Reason&) = default;
};
// A line each: "phrase: wanted; supported: supported (way out)", or without a phrase "field:
// wanted, expected supported (way out)"; parts that are empty are left out. And a JSON array of
// objects with the first four members.
std::string to_text(std::span<const Reason> reasons);
std::string to_json(std::span<const Reason> reasons);

// Whether something is supported: it is if there are no reasons against it.
struct Support {
  std::vector<Reason> reasons = {};
  explicit operator bool() const { return reasons.empty(); }
};

class Error {
 public:
  virtual ~Error() = default;
  const std::vector<Reason>& reasons() const { return reasons_; }

 protected:
  explicit Error(std::vector<Reason> reasons) : reasons_(std::move(reasons)) {}
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;

 private:
  std::vector<Reason> reasons_;
};

// A configuration that is not supported: the complete list of reasons.
class ConfigError : public std::invalid_argument, public Error {
 public:
  enum class Kind : std::uint8_t { kUnsupported, kNotImplemented, kUnknownArgument, kInvalidValue };
  ConfigError(Kind kind, std::vector<Reason> reasons);
  // One reason, kind kInvalidValue.
  ConfigError(std::string_view field, std::string_view given, std::string_view expected,
              std::string_view way_out = {});
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// A wrong call: shape, dtype, device, stride, length or id of an argument.
class InputError : public std::invalid_argument, public Error {
 public:
  InputError(std::string_view argument, std::string_view given, std::string_view expected);
  // Several things wrong with one call; argument(), given() and expected() are the first one's.
  // At least one reason.
  explicit InputError(std::vector<Reason> reasons);
  const std::string& argument() const { return reasons()[0].field; }
  const std::string& given() const { return reasons()[0].wanted; }
  const std::string& expected() const { return reasons()[0].supported; }
};

// A broken promise between parts of the library or with a third-party backend; never caused by a
// caller's data.
class ContractError : public std::logic_error, public Error {
 public:
  explicit ContractError(std::string_view what);
};

// A failed call of a device's or the operating system's interface.
class DeviceError : public std::runtime_error, public Error {
 public:
  DeviceError(std::string_view call, int code, std::string_view text);
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace fovea
