#include "fs/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

Member TensorCalled(std::string name, std::string_view error = "") {
  Tensor tensor;
  if (!error.empty()) tensor.error.emplace(EIO, error);
  return {{std::move(name)}, std::move(tensor)};
}

TEST(Strict, TakesACheckpointWhoseTensorsCanAllBeRead) {
  Checkpoint checkpoint;
  checkpoint.root.members.push_back(TensorCalled("a"));
  checkpoint.warnings.emplace_back("something else is odd");
  EXPECT_NO_THROW(CheckWhole(checkpoint, "m.pth"));
}

TEST(Strict, ReportsTheFirstUnreadableTensorAndTheirNumber) {
  auto inner = std::make_unique<Group>();
  inner->members.push_back(TensorCalled("b"));
  inner->members.push_back(TensorCalled("c", "data/7 is missing"));
  auto outer = std::make_unique<Group>();
  outer->members.push_back({{"inner"}, std::move(inner)});
  Checkpoint checkpoint;
  checkpoint.root.members.push_back(TensorCalled("a"));
  checkpoint.root.members.push_back({{"outer"}, std::move(outer)});
  checkpoint.root.members.push_back(TensorCalled("d", "data/8 is missing"));
  EXPECT_THAT([&] { CheckWhole(checkpoint, "m.pth"); },
              ThrowsMessage<Error>("m.pth: tensor 'outer.inner.c': data/7 is missing: 2 of 4 "
                                   "tensors are unreadable (strict)"));
}

TEST(Strict, CountsATensorThatHasLostSomeOfItsPieces) {
  Checkpoint checkpoint;
  checkpoint.root.members.push_back(TensorCalled("a"));
  std::get<Tensor>(checkpoint.root.members[0].content).is_complete = false;
  EXPECT_THAT(
      [&] { CheckWhole(checkpoint, "dcp"); },
      ThrowsMessage<Error>("dcp: tensor 'a': some of its pieces are missing: 1 of 1 tensors "
                           "are unreadable (strict)"));
}

TEST(Strict, CountsAnObjectThatIsLost) {
  Checkpoint checkpoint;
  Value lost{
      .json = "null", .python_type = "", .error = Error(EIO, "it is gone"), .annotations = {}};
  checkpoint.root.members.push_back({{"step"}, std::move(lost)});
  EXPECT_THAT([&] { CheckWhole(checkpoint, "dcp"); },
              ThrowsMessage<Error>("dcp: value 'step': it is gone: 1 of 1 tensors are "
                                   "unreadable (strict)"));
}

TEST(Strict, CountsATableThatCannotBeRead) {
  Checkpoint checkpoint;
  Table lost;
  lost.error.emplace(EIO, "its member is not there");
  checkpoint.root.members.push_back({{"log"}, std::move(lost)});
  EXPECT_THAT([&] { CheckWhole(checkpoint, "m.zanj"); },
              ThrowsMessage<Error>("m.zanj: table 'log': its member is not there: 1 of 1 tensors "
                                   "are unreadable (strict)"));
}

}  // namespace
}  // namespace ckptfs
