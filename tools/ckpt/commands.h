// The commands of ckpt, each in the source of its name. They print to standard output.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tools/ckpt/findings.h"
#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/output_file.h"

namespace ckptfs::ckpt {

struct LsOptions {
  std::string pattern;  // See Matches.
  bool is_long = false;
  bool is_tree = false;  // By module instead of by tensor.
  bool by_size = false;  // The largest first.
  OutputFormat format = OutputFormat::kText;
};

// ckpt ls: prints the tensors. Throws Error.
void List(const Model& model, const LsOptions& options);

// ckpt info: prints the format, tensors, ties, annotations, values, and what loading it would
// import. `format` is kText or kJson. Throws Error.
void Describe(const Model& model, OutputFormat format);

// ckpt cat: writes the tensor `key`, which may end with a slice in brackets, to standard output:
// its bytes, or `as_npy` a file of NumPy. Throws Error: ENOENT if there is no such tensor.
void Dump(const Model& model, const std::string& key, bool as_npy);

// ckpt show: prints the elements of the tensor `key`, or of a slice of it, their figures and a
// histogram. Throws Error: ENOTSUP if ckpt does not decode them.
void Show(const Model& model, const std::string& key);

struct StatOptions {
  std::string pattern;    // See Matches.
  bool is_check = false;  // NaN and infinities are a failure.
  OutputFormat format = OutputFormat::kText;
};

// ckpt stat: reads the tensors in several threads, and prints their figures. Returns the exit
// status: 1 if `is_check` finds something, 5 if a tensor cannot be read, else 0. Throws Error.
int Measure(const Model& model, const StatOptions& options);

struct DiffOptions {
  std::string pattern;   // Of keys of either, after they are renamed. See Matches.
  std::string map;       // See KeyMap.
  double tolerance = 0;  // Absolute differences of elements that are no differences.
  OutputFormat format = OutputFormat::kText;
};

// ckpt diff: prints the tensors that differ. Returns the exit status, as diff(1): 0 if there are
// none, 1 if there are some. Throws Error.
int Diff(const Model& a, const Model& b, const DiffOptions& options);

struct ConvertOptions {
  std::string output;
  std::string target;   // Its name (target.h); empty: that of the suffix of `output`.
  std::string pattern;  // Only keys that match; empty: all.
  std::string map;      // See KeyMap.
  std::string dtype;    // Of floating-point tensors, see CastTypeNamed; empty: as they are.
  std::string shard;    // "5GB": the most bytes of a file; empty: one file.
  Existing existing = Existing::kKeep;
  bool is_verified = false;  // Compare what is on the disk with the source.
};

// ckpt convert: writes the checkpoint in another format: all files, or none. Keeps a few chunks in
// memory. Throws Error.
void Convert(const Model& model, const ConvertOptions& options);

// ckpt scan: prints the classes and functions that the pickles of `sources`, and of all files in
// those that are folders, import, unless torch.load(weights_only=True) allows them. Nothing is
// executed. Returns the exit status: 1 if there is any, or if a file cannot be read, because its
// pickle runs up to the corrupt byte; else 0. Throws Error.
int Scan(std::span<const std::string> sources, const Opener& opener, ScanFormat format);

// ckpt report: writes an HTML page about the checkpoint to `out`, or to standard output. With
// `has_values` reads the tensors, for their figures and histograms. Returns the exit status: 5 if a
// tensor cannot be read, which the page shows, else 0. Throws Error.
int Report(const Model& model, bool has_values, std::optional<OutputFile> out, Existing existing);

}  // namespace ckptfs::ckpt
