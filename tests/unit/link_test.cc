#include "parser/layer/range_cache/link.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMiB = uint64_t{1} << 20U;

class LinkTest : public ::testing::Test {
 protected:
  // Answers arrive for `duration`, one each 10 ms, each `latency` after its request.
  void Answer(milliseconds duration, milliseconds latency, uint64_t bytes = 0) {
    for (const auto end = now_ + duration; now_ < end; now_ += milliseconds(10)) {
      link_.RecordAnswer(latency, now_);
      if (bytes > 0) link_.RecordArrived(bytes, now_);
    }
  }

  Link link_{64};
  Link::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(LinkTest, BeginsWithTheUsualNumberOfRequests) {
  EXPECT_EQ(link_.fetches(), 8U);
  EXPECT_EQ(link_.in_flight(), 4 * kMiB);
  EXPECT_EQ(Link(2).fetches(), 2U);
}

TEST_F(LinkTest, KeepsBandwidthTimesLatencyInFlight) {
  Answer(seconds(5), milliseconds(50), 1'250'000);  // 125 MB/s.
  EXPECT_GE(link_.in_flight(), 6'250'000U);
  EXPECT_LE(link_.in_flight(), 14'000'000U);
  Answer(seconds(5), milliseconds(150), 1'250'000);
  EXPECT_LE(link_.in_flight(), 14'000'000U) << "latency in a queue is none of the link";
}

TEST_F(LinkTest, KeepsMoreInFlightAsLongAsTheRateGrows) {
  link_.RecordAnswer(milliseconds(50), now_);
  link_.RecordArrived(kMiB, now_);
  EXPECT_EQ(link_.in_flight(), 6 * kMiB);
  for (uint64_t bytes = 100'000; bytes <= 400'000; bytes *= 2) {
    Answer(milliseconds(250), milliseconds(50), bytes / 25);
  }
  EXPECT_GT(link_.in_flight(), 6 * kMiB);
  Answer(seconds(2), milliseconds(50), 16'000);
  EXPECT_EQ(link_.in_flight(), 4 * kMiB);
}

TEST_F(LinkTest, KeepsMoreInFlightOnALongLinkInSlowStart) {
  Answer(seconds(2), milliseconds(150), 160'000);  // 16 MB/s.
  const uint64_t few = link_.in_flight();
  EXPECT_LE(few, 8 * kMiB);
  link_.RecordRoundTrip(milliseconds(150));
  EXPECT_GE(link_.in_flight(), few * 3 / 2);
}

TEST_F(LinkTest, KeepsLittleInFlightOnASlowLink) {
  Answer(seconds(5), milliseconds(50), 40'000);  // 4 MB/s.
  EXPECT_EQ(link_.in_flight(), 4 * kMiB);
}

TEST_F(LinkTest, SendsMoreRequestsWhileReadersWait) {
  Answer(seconds(1), milliseconds(50));
  EXPECT_EQ(link_.fetches(), 8U);
  link_.RecordQueued(now_);
  Answer(milliseconds(100), milliseconds(50));
  EXPECT_EQ(link_.fetches(), 38U);
  link_.RecordQueued(now_);
  Answer(seconds(1), milliseconds(50));
  EXPECT_EQ(link_.fetches(), 64U);
}

TEST_F(LinkTest, SendsFewerRequestsWhenAnswersTakeLonger) {
  Answer(milliseconds(100), milliseconds(50));
  link_.RecordQueued(now_);
  Answer(milliseconds(500), milliseconds(50));
  EXPECT_GT(link_.fetches(), 32U);
  Answer(seconds(1), milliseconds(400));
  EXPECT_LE(link_.fetches(), 15U);
  EXPECT_GE(link_.fetches(), 8U);
}

TEST_F(LinkTest, SendsFewerRequestsToAServerWithFewWorkers) {
  Answer(milliseconds(100), milliseconds(1));
  link_.RecordServed(2);
  link_.RecordUnanswered(6, now_);
  EXPECT_EQ(link_.fetches(), 2U);
  Answer(seconds(1), milliseconds(1));
  EXPECT_EQ(link_.fetches(), 2U);
  Answer(seconds(2), milliseconds(1));
  EXPECT_EQ(link_.fetches(), 3U) << "tries again after a while, one more each time";
  link_.RecordServed(2);
  link_.RecordUnanswered(1, now_);
  EXPECT_EQ(link_.fetches(), 2U);
}

TEST_F(LinkTest, ForgivesOneSlowAnswer) {
  link_.RecordServed(7);
  link_.RecordUnanswered(1, now_);
  EXPECT_EQ(link_.fetches(), 8U);
  link_.RecordServed(7);
  link_.RecordUnanswered(1, now_ + seconds(1));
  EXPECT_EQ(link_.fetches(), 7U);
}

TEST_F(LinkTest, WaitsForAnswersInProportionToTheirLatency) {
  Answer(seconds(1), milliseconds(150));
  EXPECT_GE(link_.answer_limit(), milliseconds(600));
  EXPECT_LE(link_.answer_limit(), milliseconds(700));
  EXPECT_GE(link_.repeat_limit(), milliseconds(300));
}

// A server that fetches an object from a slow store first, and then answers all requests for it.
TEST_F(LinkTest, WaitsForOthersAsLongAsForALongAnswer) {
  Answer(milliseconds(100), milliseconds(50));
  link_.RecordAnswer(seconds(12), now_);
  EXPECT_GE(link_.answer_limit(), seconds(24));
  EXPECT_GE(link_.repeat_limit(), seconds(12));
}

TEST_F(LinkTest, IgnoresHowLongARequestHasWaitedForAWorker) {
  Answer(milliseconds(100), milliseconds(50));
  link_.RecordServed(1);
  link_.RecordUnanswered(7, now_);
  link_.RecordAnswer(seconds(7), now_);
  EXPECT_LE(link_.repeat_limit(), milliseconds(300));
  EXPECT_LE(link_.answer_limit(), milliseconds(600));
}

TEST_F(LinkTest, CountsTheFirstAnswerOfAServerWithFewWorkers) {
  link_.RecordServed(1);
  link_.RecordUnanswered(7, now_);
  link_.RecordAnswer(milliseconds(150), now_);
  EXPECT_GE(link_.repeat_limit(), milliseconds(300));
}

TEST_F(LinkTest, SendsFewerRequestsIfManyAreRepeated) {
  Answer(milliseconds(50), milliseconds(20));
  link_.RecordServed(1);
  link_.RecordRepeated(now_);
  link_.RecordRepeated(now_);
  EXPECT_EQ(link_.fetches(), 8U);
  link_.RecordRepeated(now_);
  EXPECT_EQ(link_.fetches(), 1U);
}

TEST_F(LinkTest, ToleratesThatAFewOfManyAreRepeated) {
  Answer(milliseconds(500), milliseconds(20));
  link_.RecordServed(1);
  for (int i = 0; i < 5; ++i) link_.RecordRepeated(now_);
  EXPECT_EQ(link_.fetches(), 8U);
}

TEST_F(LinkTest, HasLongRangesIfTheServerHasOneWorker) {
  Answer(seconds(2), milliseconds(20), 1'000'000);  // 100 MB/s.
  EXPECT_EQ(link_.longest_range(), 8 * kMiB);
  link_.RecordServed(1);
  link_.RecordUnanswered(7, now_);
  EXPECT_GE(link_.longest_range(), 40 * kMiB);
  EXPECT_LE(link_.longest_range(), 64 * kMiB);
}

}  // namespace
}  // namespace ckptfs
