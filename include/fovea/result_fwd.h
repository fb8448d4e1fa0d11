#pragma once
// Declares Result, Status and Error, for headers that only declare functions with them. Who defines or calls
// such a function includes fovea/result.h.

namespace fovea {

enum class ErrorCode;
struct Error;
template <class T>
class Result;
template <>
class Result<void>;
using Status = Result<void>;

}  // namespace fovea
