// Replies to requests of the kernel: attributes, errors, and replies that may take long.

#pragma once

#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "fs/namespace.h"
#include "fs/operations.h"
#include "fs/slow_reads.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"

namespace ckptfs {

inline Mount& MountOf(fuse_req_t req) { return *static_cast<Mount*>(fuse_req_userdata(req)); }

inline Namespace& FilesOf(fuse_req_t req) { return MountOf(req).files; }

struct stat AttributesOf(const Mount& mount, const Node& node, fuse_ino_t number);

// Returns an entry whose name remains valid forever.
fuse_entry_param EntryOf(const Mount& mount, const Node& node, fuse_ino_t number);

// Returns a buffer of at least `size` bytes that the thread uses for all its replies. Reusing it
// saves a page fault for each 4 KiB of each read; aligning it to a page saves a tenth of the
// copying.
std::span<char> Scratch(size_t size);

// Returns the pages of the buffer to the system if many threads have one: those that wait for a
// server may be 64.
void TrimScratch();

// Returns the errno for readers of a file, which does not include EBADMSG.
int ErrnoForReader(int code);

// Replies with `code`, and logs why.
void ReplyFailure(fuse_req_t req, const char* what, fuse_ino_t number, int code,
                  std::string_view why) noexcept;

// Runs `body` and replies with an error if it throws: no exception may reach libfuse. Returns
// whether `body` has replied.
template <typename Body>
bool Answer(fuse_req_t req, const char* what, fuse_ino_t number, Body body) noexcept {
  try {
    body();
    return true;
  } catch (const Error& e) {
    ReplyFailure(req, what, number, ErrnoForReader(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    ReplyFailure(req, what, number, ENOMEM, "out of memory");
  } catch (const std::exception& e) {
    ReplyFailure(req, what, number, EIO, e.what());
  }
  return false;
}

// Replies that a file or a directory is open. Open files need no state. A kernel with `capability`
// opens everything without further requests after ENOSYS, and keeps pages and listings; but it
// could then not close a directory of a store.
void ReplyOpen(fuse_req_t req, fuse_file_info* file, unsigned capability);

// Whether the reader that waits for the reply has been killed or has left.
bool IsReaderGone(fuse_req_t req);

// A request that may have to wait, such as for the parse of a checkpoint.
class SlowRequest final : public SlowReads::Request {
 public:
  using Body = std::function<void(fuse_req_t req)>;

  // `body` replies, or throws.
  SlowRequest(fuse_req_t req, const char* what, fuse_ino_t number, Body body)
      : req_(req), what_(what), number_(number), body_(std::move(body)) {}

  bool Run() noexcept override {
    bool is_preempted = false;
    Answer(req_, what_, number_, [&] {
      try {
        body_(req_);
      } catch (const Preempted&) {
        is_preempted = true;
      }
    });
    return !is_preempted;
  }

  bool IsCancelled() const noexcept override { return IsReaderGone(req_); }
  void Refuse(int code) noexcept override { fuse_reply_err(req_, code); }

 private:
  fuse_req_t req_;
  const char* const what_;
  const fuse_ino_t number_;
  const Body body_;
};

}  // namespace ckptfs
