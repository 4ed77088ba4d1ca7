// The depth of nested structures, of which files may contain more than the stack has room for.

#pragma once

namespace ckptfs {

// A level, as long as it exists. The caller checks `depth` before it enters one.
class NestingLevel {
 public:
  explicit NestingLevel(int& depth) : depth_(depth) { ++depth_; }
  NestingLevel(const NestingLevel&) = delete;
  NestingLevel& operator=(const NestingLevel&) = delete;
  ~NestingLevel() { --depth_; }

 private:
  int& depth_;
};

}  // namespace ckptfs
