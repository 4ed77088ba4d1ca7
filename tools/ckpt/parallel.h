// Work in several threads.

#pragma once

#include <cstddef>
#include <functional>

namespace ckptfs::ckpt {

// Calls work(i) for each i below `count`, in ascending order, in as many threads as there are
// processors. `work` throws nothing.
void InParallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace ckptfs::ckpt
