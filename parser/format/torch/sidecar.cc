#include "parser/format/torch/sidecar.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>
#include <variant>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/detect.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {
namespace {

constexpr std::string_view kEnding = ".tensors";

}  // namespace

ByteSourcePtr Sidecar::OpenFile() {
  if (options_.sidecar) {
    name_ = options_.sidecar->name();
    if (options_.budget != nullptr) {
      options_.budget->AddFile(StoredSize(*options_.sidecar), options_.sidecar->is_remote());
    }
    return options_.sidecar;
  }
  name_ = source_.file_name + std::string(kEnding);
  if (!source_.folder) Fail(ENOENT, "no file lies beside the checkpoint (-o sidecar= names one)");
  try {
    return source_.folder->Open(name_);
  } catch (const Error& e) {
    if (e.code() != ENOENT) throw;
    Fail(ENOENT, "is not there (-o sidecar= names another one)");
  }
}

void Sidecar::Open() {
  if (std::exchange(is_open_, true)) return;
  try {
    // It has no sidecar of its own.
    Checkpoint checkpoint = ReadCheckpoint(OpenFile(), name_,
                                           {.ask_secret = options_.ask_secret,
                                            .verification = options_.verification,
                                            .sidecar = nullptr,
                                            .budget = options_.budget});
    if (checkpoint.format != "tensorizer") {
      Fail(EBADMSG, "{}: is a checkpoint of format {}, not tensorizer", name_, checkpoint.format);
    }
    for (Member& member : checkpoint.root.members) {
      if (auto* tensor = std::get_if<Tensor>(&member.content)) {
        tensors_.emplace(std::move(member.key.text), std::move(*tensor));
      }
    }
    warnings_ = std::move(checkpoint.warnings);
  } catch (const Error& e) {
    if (e.code() == EKEYREJECTED || e.code() == EFBIG || IsTransient(e.code())) throw;
    error_ = std::string_view(e.what()).starts_with(name_) ? e.what()
                                                           : fmt::format("{}: {}", name_, e.what());
  }
}

Record Sidecar::Find(uint64_t index) {
  Open();
  Record record{.data = {},
                .member = fmt::format("{}: tensor {}", name_, index),
                .is_in_file = false,
                .error = error_};
  if (!error_.empty()) return record;
  const auto found = tensors_.find(std::to_string(index));
  if (found == tensors_.end()) {
    record.error = fmt::format("{} has no tensor {}", name_, index);
  } else if (const Tensor& tensor = found->second; tensor.error.empty()) {
    record.data = tensor.data;
  } else {
    record.error = fmt::format("{}: {}", record.member, tensor.error);
    record.error_code = tensor.error_code;
  }
  return record;
}

void Sidecar::Tell(Checkpoint& checkpoint) const {
  if (!is_open_) return;
  checkpoint.annotations.emplace_back("sidecar", json::String(name_));
  for (const std::string& warning : warnings_) {
    checkpoint.warnings.push_back(fmt::format("{}: {}", name_, warning));
  }
}

}  // namespace ckptfs::torch
