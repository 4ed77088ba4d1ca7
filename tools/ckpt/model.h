// A checkpoint that a command reads, with all that it needs to be read.

#pragma once

#include <memory>
#include <string>

#include "fs/checks.h"
#include "fs/guard.h"
#include "fs/log.h"
#include "fs/options.h"
#include "fs/remote.h"
#include "fs/secrets.h"
#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// Belongs to one thread; the sources of its tensors may be read by several.
class Model {
 public:
  // Reads the headers of the checkpoint `uri`, in bounded memory and time. Keeps `step` up to date.
  // `options` and `log`, which gets warnings, must outlive this. `verification` of hashes is that
  // of `options` if it is null. Throws Error.
  Model(const std::string& uri, const Options& options, Log& log, Step& step,
        std::shared_ptr<const Verification> verification = nullptr);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() = default;

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // The name for messages, without secrets.
  const std::string& name() const { return name_; }

 private:
  Checkpoint Read(const std::string& uri, const Options& options, Log& log, Step& step);

  std::shared_ptr<const Verification> verification_;
  Secrets secrets_;
  Readers readers_;
  Remote remote_;
  std::string name_;
  Checkpoint checkpoint_;  // Last: its sources are of `remote_`.
};

// Opens sources with the options of the command line.
class Opener {
 public:
  // All must outlive this.
  Opener(const Options& options, Log& log, Step& step)
      : options_(options), log_(log), step_(step) {}

  // Opens a checkpoint; with a verification, its hashes are checked while it is read. Throws Error.
  std::unique_ptr<Model> operator()(const std::string& source,
                                    std::shared_ptr<const Verification> verification) const;

  const Options& options() const { return options_; }
  Log& log() const { return log_; }

 private:
  const Options& options_;
  Log& log_;
  Step& step_;
};

}  // namespace ckptfs::ckpt
