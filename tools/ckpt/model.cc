#include "tools/ckpt/model.h"

#include <unistd.h>

#include <string_view>
#include <utility>

#include "fs/checks.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/io/location.h"
#include "parser/read_options.h"

namespace ckptfs::ckpt {

Model::Model(const std::string& uri, const Options& options, Log& log, Step& step,
             std::shared_ptr<const Verification> verification)
    : verification_(verification ? std::move(verification) : VerificationFor(options.verify, log)),
      secrets_(options),
      remote_(options, readers_, log),
      name_(Redacted(uri)) {
  checkpoint_ = Read(uri, options, log, step);
}

std::unique_ptr<Model> Opener::operator()(const std::string& source,
                                          std::shared_ptr<const Verification> verification) const {
  step_ = Step::kSecret;
  auto model = std::make_unique<Model>(source, options_, log_, step_, std::move(verification));
  step_ = Step::kCommand;
  return model;
}

Checkpoint Model::Read(const std::string& uri, const Options& options, Log& log, Step& step) {
  step = Step::kOpen;
  const Source source = remote_.Open(uri);
  name_ = source.name();
  ByteSourcePtr sidecar;
  if (!options.sidecar.empty()) sidecar = remote_.OpenFile(options.sidecar);
  step = Step::kParse;
  Budget budget;
  budget.WatchRetries(remote_.retries());
  const auto allowance = ParseTimeOf(options, remote_.is_used());
  const ParseLimits limits(budget, allowance, [&] {
    log.Error("{}: reading the headers does not end", name_);
    ::_exit(static_cast<int>(ExitCode::kTooLarge));
  });
  const auto ask = [&](bool takes_passphrase) {
    budget.StopTime();  // Users may take theirs.
    auto secret = secrets_.Get(takes_passphrase);
    budget.SetTime(allowance);
    return secret;
  };
  const auto scratch = std::make_shared<ScratchSpace>();
  const ReadOptions what{.ask_secret = ask,
                         .verification = verification_,
                         .scratch = scratch,
                         .sidecar = std::move(sidecar),
                         .budget = &budget};
  try {
    Checkpoint checkpoint = Metered(budget, [&] { return ReadCheckpoint(source, what); });
    if (!options.subtree.empty()) TakeSubtree(checkpoint, options.subtree);
    if (options.strict) CheckWhole(checkpoint, name_);
    LogWarnings(log, name_, checkpoint.warnings);
    scratch->Allow(options.scratch.value_or(DefaultScratch()));
    return checkpoint;
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(name_)) throw;
    throw WithContext(name_, e);
  }
}

}  // namespace ckptfs::ckpt
