// SPDX-License-Identifier: Apache-2.0
#include "cli/tag_findings.h"

#include <gtest/gtest.h>

#include "common/histogram.h"

namespace fleetblame::cli {
namespace {

using Row = v1::TagsResponse::Row;

// sda waited 4,120 times while sdb held 3.7 of 4 tags.
Row Sample(uint32_t pool = 4) {
  Row row;
  row.set_hostname("db1");
  row.set_device("sda");
  row.set_kind(v1::TAG_KIND_HARDWARE);
  row.set_nr_tags_min(pool);
  row.set_nr_tags_max(pool);
  row.mutable_set()->set_shared(true);
  row.mutable_set()->set_queue_depth(pool);
  row.mutable_metrics()->set_waits(4120);
  row.mutable_metrics()->mutable_wait()->add_buckets(
      static_cast<uint32_t>(HistogramBucket(18'000'000)));
  row.mutable_metrics()->mutable_wait()->add_counts(4120);
  v1::TagsResponse::Holder* slow = row.add_holders();
  slow->set_device("sdb");
  slow->set_tags_sum(37 * pool / 4);
  slow->set_samples(10);
  slow->set_nr_tags_sum(10 * pool);
  v1::TagsResponse::Holder* own = row.add_holders();
  own->set_device("sda");
  own->set_waiter(true);
  own->set_tags_sum(3);
  own->set_samples(10);
  own->set_nr_tags_sum(10 * pool);
  row.add_waiters()->set_comm("postgres");
  v1::TagsResponse::SourceWaits* source = row.add_sources();
  source->set_source(v1::TAG_WAIT_SOURCE_FENTRY);
  source->set_waits(4120);
  return row;
}

TEST(TagFindings, NamesWhoStarvedAndWhoHeldTheTags) {
  EXPECT_EQ(Finding(Sample()),
            "sda starved on hardware tags 4,120 times, p99 18 ms; sdb held 3.7 of 4 tags; "
            "consider io.max for the cgroups that keep sdb busy");
  EXPECT_EQ(Finding(Sample(), true).find("sda of db1 starved on hardware tags 4,120 times"), 0u);
  EXPECT_EQ(HoldersText(Sample(), 3), "sdb 92.5 %, sda 7.5 %");
  EXPECT_EQ(HoldersText(Sample(), 1), "sdb 92.5 %, 1 more");
}

TEST(TagFindings, RemediesFollowTheSettingsOfTheHolder) {
  Row row = Sample(32);
  v1::TagDisk* settings = row.mutable_holders(0)->mutable_settings();
  settings->set_scheduler("mq-deadline");
  settings->set_nr_requests(64);
  settings->set_queue_depth(32);
  EXPECT_NE(Finding(row).find("consider nr_requests of sdb below 32 (now 64), or a smaller "
                              "queue_depth of sdb (now 32), or io.max"),
            std::string::npos)
      << Finding(row);
  settings->set_nr_requests(16);
  EXPECT_EQ(Finding(row).find("nr_requests"), std::string::npos);
  settings->set_scheduler("none");
  EXPECT_NE(Finding(row).find("an I/O scheduler for sdb with fewer nr_requests"),
            std::string::npos);
  // The kernel takes nothing below 4.
  row.set_nr_tags_min(4);
  EXPECT_EQ(Finding(row).find("nr_requests"), std::string::npos);
}

TEST(TagFindings, NoRemedyWhereNothingSpeaksForIt) {
  Row row = Sample();
  row.mutable_set()->set_shared(false);
  EXPECT_EQ(Finding(row).find("consider"), std::string::npos) << "a pool of its own";
  row = Sample();
  row.mutable_holders(0)->set_tags_sum(15);
  row.mutable_holders(1)->set_tags_sum(14);
  EXPECT_EQ(Finding(row),
            "sda starved on hardware tags 4,120 times, p99 18 ms; sdb held 1.5 of 4 tags, "
            "sda held 1.4 of 4 tags itself");
  row = Sample();
  row.clear_holders();
  EXPECT_EQ(Finding(row),
            "sda starved on hardware tags 4,120 times, p99 18 ms; who held the tags is not "
            "known");
  EXPECT_EQ(HoldersText(row, 3), "-");
  row = Sample();
  row.set_reserved(true);
  EXPECT_NE(Finding(row).find("starved on reserved hardware tags"), std::string::npos);
  EXPECT_EQ(Finding(row).find("consider"), std::string::npos);
}

TEST(TagFindings, ADiskThatStarvesItself) {
  Row row = Sample();
  row.mutable_holders()->SwapElements(0, 1);
  row.mutable_holders(0)->set_tags_sum(40);
  row.mutable_holders()->RemoveLast();
  EXPECT_EQ(Finding(row),
            "sda starved on hardware tags 4,120 times, p99 18 ms; sda held 4 of 4 tags "
            "itself");
  row.add_waiters()->set_comm("rsync");
  EXPECT_NE(Finding(row).find("consider cgroup weights"), std::string::npos);
}

TEST(TagFindings, SchedulerTagsAreTheDisksOwn) {
  Row row = Sample();
  row.set_kind(v1::TAG_KIND_SCHEDULER);
  row.mutable_settings()->set_scheduler("mq-deadline");
  row.mutable_settings()->set_nr_requests(4);
  row.mutable_set()->set_queue_depth(32);
  EXPECT_EQ(Finding(row),
            "sda starved on scheduler tags 4,120 times, p99 18 ms; its own pool has 4; "
            "consider more nr_requests (now 4; the controller takes 32 at once), or scheduler "
            "none instead of mq-deadline, which has no such pool");
  row.mutable_settings()->set_nr_requests(64);
  EXPECT_EQ(Finding(row).find("consider"), std::string::npos);
}

TEST(TagFindings, SaysWhatTheFiguresRestOn) {
  Row row = Sample();
  row.mutable_sources(0)->set_source(v1::TAG_WAIT_SOURCE_INFERRED);
  EXPECT_NE(Finding(row).find("(inferred from sleeping tasks, so some are missing)"),
            std::string::npos);
  row.mutable_sources(0)->set_waits(20);
  row.mutable_metrics()->set_ended_by_freeze(3);
  row.mutable_metrics()->set_ended_by_removal(2);
  row.mutable_metrics()->set_ended_by_signal(1);
  row.mutable_metrics()->set_ended_unseen(5);
  EXPECT_NE(Finding(row).find("(20 of them inferred from sleeping tasks; 1 ended while a fatal "
                              "signal was pending; 2 ended as the disk was removed; 3 ended in a "
                              "freeze of the queue; the end of 5 was not seen)"),
            std::string::npos)
      << Finding(row);
}

TEST(TagFindings, UnknownIsNotZero) {
  Row row = Sample();
  row.mutable_holders(0)->set_nr_tags_sum(0);
  row.mutable_holders(1)->set_nr_tags_sum(0);
  EXPECT_FALSE(ShareOf(row.holders(0)).has_value());
  EXPECT_EQ(HoldersText(row, 3), "sdb -, sda -");
  EXPECT_NE(Finding(row).find("sdb held 3.7 tags"), std::string::npos);
  row.mutable_holders(0)->set_samples(0);
  EXPECT_FALSE(MeanOf(row.holders(0)).has_value());
  EXPECT_NE(Finding(row).find("is not known"), std::string::npos);
  EXPECT_FALSE(SeenNs(3, 0).has_value());
  EXPECT_EQ(SeenNs(0, 0), 0u);
  EXPECT_EQ(SeenNs(3, 7), 7u);
  row = Sample();
  row.mutable_metrics()->clear_wait();
  EXPECT_EQ(Finding(row).find("p99"), std::string::npos);
  row.mutable_metrics()->set_waits(0);
  EXPECT_EQ(Finding(row), "");
  EXPECT_EQ(TagKindText(v1::TAG_KIND_UNSPECIFIED), "unknown kind of");
  EXPECT_EQ(TagSourceText(v1::TAG_WAIT_SOURCE_UNSPECIFIED), "unknown");
}

}  // namespace
}  // namespace fleetblame::cli
