// Work in several threads.

#pragma once

#include <cstddef>
#include <functional>

namespace ckptfs::ckpt {

// Calls work(i) for each i below `count`, in ascending order, in as many threads as there are
// processors. Throws the first Error or std::bad_alloc of `work`, once all threads have ended,
// which begin nothing more.
void InParallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace ckptfs::ckpt
