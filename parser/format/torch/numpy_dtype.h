// Element types of NumPy inside a pickle, and elements of them.

#pragma once

#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/codec/npy/type.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

struct NumpyDtype {
  npy::Type type;
  std::string descr;  // In JSON, as the header of a .npy file has it: "\"<f4\"", [["a","<f4"]].
  std::string scalar_class;  // Of one element: "numpy.float32", "numpy.record".
};

// Returns the type of a numpy.dtype object. Charges `budget` for it. Throws Error: EBADMSG if it is
// not a dtype, EFBIG.
NumpyDtype NumpyDtypeOf(const pickle::Value& value, Budget& budget);

// Appends one element of the type `dtype` in JSON: npy::AppendElement, and structures as objects
// with their fields. Throws Error: EBADMSG if `bytes` are not as many as the type has, ENOTSUP if
// there are objects of Python in it, EFBIG.
void AppendNumpyElement(std::string& out, const pickle::Value& dtype, std::string_view bytes,
                        Budget& budget);

}  // namespace ckptfs::torch
