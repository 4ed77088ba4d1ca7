#include "tools/ckpt/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "fs/options.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/parallel.h"
#include "tools/ckpt/progress.h"

namespace ckptfs::ckpt {
namespace {

struct Counts {
  uint64_t right = 0;
  uint64_t wrong = 0;
  uint64_t unread = 0;  // Their hash covers bytes that no tensor has.
  uint64_t none = 0;    // Tensors without a hash.
};

// Reads those tensors that have hashes. Returns the errors, each with the key.
std::vector<std::string> ReadAll(std::span<const TensorEntry> tensors) {
  uint64_t bytes = 0;
  for (const TensorEntry& entry : tensors) bytes += entry.tensor->data.length;
  Progress progress(bytes);
  std::vector<std::optional<Error>> errors(tensors.size());
  InParallel(tensors.size(), [&](size_t i) {
    try {
      // In order, which is what hashes need.
      ReadInOrder(tensors[i].tensor->data,
                  [&](std::span<const std::byte> piece) { progress.Add(piece.size()); });
    } catch (const Error& error) {
      errors[i] = error;
    }
  });
  std::vector<std::string> sentences;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (errors[i]) {
      sentences.push_back(fmt::format("{}: {}", Printable(tensors[i].key), errors[i]->what()));
    }
  }
  return sentences;
}

void Count(Verdict verdict, Counts& counts) {
  switch (verdict) {
    case Verdict::kNone:
      ++counts.none;
      return;
    case Verdict::kUnread:
      ++counts.unread;
      return;
    case Verdict::kRight:
      ++counts.right;
      return;
    case Verdict::kWrong:
      ++counts.wrong;
      return;
  }
}

std::string ListJson(std::span<const std::string> sentences) {
  std::vector<std::string> texts;
  for (const std::string& sentence : sentences) texts.push_back(json::String(sentence));
  return fmt::format("[{}]", fmt::join(texts, ","));
}

}  // namespace

std::shared_ptr<const Verification> WrongHashes::MakeVerification() {
  const auto report = [this](std::string_view what, Verdict verdict, std::string_view found) {
    if (verdict != Verdict::kWrong) return;
    MutexLock lock(mutex_);
    sentences_.push_back(fmt::format("{}: {}", what, found));
  };
  return std::make_shared<Verification>(Verification{.is_enforced = false, .report = report});
}

std::vector<std::string> WrongHashes::Sentences() const {
  MutexLock lock(mutex_);
  return sentences_;
}

int VerifyHashes(const Model& model, const WrongHashes& wrong, OutputFormat format) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  const std::vector<TensorEntry> all = TensorsOf(entries);
  std::vector<TensorEntry> hashed;
  std::vector<std::string> errors;
  Counts counts;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& tensor = *all[i].tensor;
    if (tensor.error) {
      errors.push_back(fmt::format("{}: {}", Printable(all[i].key), MessageOf(tensor.error)));
    } else if (all[i].tied_to == i && tensor.data.length > 0) {
      if (tensor.data.source->verdict() == Verdict::kNone) {
        ++counts.none;
      } else {
        hashed.push_back(all[i]);
      }
    }
  }
  for (std::string& error : ReadAll(hashed)) errors.push_back(std::move(error));
  for (const TensorEntry& entry : hashed) Count(entry.tensor->data.source->verdict(), counts);
  std::vector<std::string> mismatches = wrong.Sentences();
  std::ranges::sort(mismatches);
  if (format == OutputFormat::kJson) {
    const std::pair<std::string_view, std::string> members[] = {
        {"right", fmt::to_string(counts.right)},   {"wrong", fmt::to_string(counts.wrong)},
        {"unread", fmt::to_string(counts.unread)}, {"without", fmt::to_string(counts.none)},
        {"mismatches", ListJson(mismatches)},      {"errors", ListJson(errors)}};
    Print(json::Object(members) + "\n");
  } else {
    std::string text;
    for (const std::string& sentence : mismatches) text += Printable(sentence) + "\n";
    for (const std::string& sentence : errors) text += sentence + "\n";
    text += fmt::format("{} right, {} wrong, {} without a hash", CountText(counts.right),
                        CountText(counts.wrong), CountText(counts.none));
    if (counts.unread > 0) text += fmt::format(", {} not verified", CountText(counts.unread));
    Print(text + "\n");
  }
  const bool is_right = mismatches.empty() && errors.empty();
  return is_right ? 0 : static_cast<int>(ExitCode::kCorrupt);
}

}  // namespace ckptfs::ckpt
