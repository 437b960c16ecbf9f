// SPDX-License-Identifier: Apache-2.0
//
// Whatever reaches the port, the aggregator goes on serving those who behave.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/histogram.h"
#include "common/row_block.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/collector.grpc.pb.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/synthetic_recording.h"

namespace fleetblame::testing {
namespace {

constexpr int kWindows = 5;
constexpr uint32_t kNonsenseDevices = 2000;

class HostilePeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto aggregator = fleet_.StartAggregator();
    ASSERT_TRUE(aggregator.ok()) << aggregator.status();
    aggregator_ = *std::move(aggregator);
  }

  // A well-behaved agent still gets everything through, and the process is the same one.
  void TearDown() override {
    ASSERT_FALSE(aggregator_->HasEnded()) << aggregator_->Log();
    std::string recording = fleet_.directory() + "/recording";
    ASSERT_TRUE(WriteSyntheticRecording(recording, kWindows, 1'000'000'000).ok());
    auto agent = fleet_.StartAgent("honest", {"--tracer", "replay", "--replay-file", recording,
                                              "--replay-speed", "0", "--replay-clock", "end-now"});
    ASSERT_TRUE(agent.ok()) << agent.status();
    auto status = (*agent)->WaitForExit();
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(*status, 0) << (*agent)->Log() << aggregator_->Log();
    EXPECT_EQ(fleet_.StoredBytes("honest"), kWindows * kBytesPerWindow);
    EXPECT_LT(ResidentBytes(), uint64_t{1} << 30);
  }

  uint64_t ResidentBytes() const {
    std::ifstream file(absl::StrCat("/proc/", aggregator_->pid(), "/statm"));
    uint64_t size = 0, pages = 0;
    file >> size >> pages;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }

  int Connect() const {
    std::vector<std::string> parts = absl::StrSplit(fleet_.address(), ':');
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(parts[1], &port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  using Stream = grpc::ClientReaderWriter<v1::AgentMessage, v1::AggregatorMessage>;

  // Sends the messages on one stream and returns the status with which it ended. Reads until then.
  grpc::Status Send(const std::vector<v1::AgentMessage>& messages) {
    auto channel = grpc::CreateChannel(fleet_.address(), grpc::InsecureChannelCredentials());
    auto stub = v1::Collector::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    std::unique_ptr<Stream> stream = stub->Stream(&context);
    for (const auto& message : messages) {
      if (!stream->Write(message)) break;
    }
    stream->WritesDone();
    v1::AggregatorMessage reply;
    while (stream->Read(&reply)) {
    }
    return stream->Finish();
  }

  static v1::AgentMessage Hello(const std::string& host_id) {
    v1::AgentMessage message;
    v1::Hello* hello = message.mutable_hello();
    hello->set_protocol_version(1);
    hello->set_host_id(host_id);
    hello->set_hostname(host_id);
    hello->set_boot_id("boot");
    hello->set_spool_epoch(1);
    hello->set_realtime_unix_ns(1'800'000'000'000'000'000);
    hello->set_boottime_ns(1);
    return message;
  }

  // Thousands of devices with names for a terminal to trip over, and numbers that no sum can hold.
  static v1::AgentMessage Nonsense(uint64_t seq) {
    v1::AgentMessage message;
    v1::Batch* batch = message.mutable_batch();
    batch->set_seq(seq);
    batch->set_spool_epoch(1);
    batch->set_dictionary_id(1);
    batch->mutable_definitions()->set_dictionary_id(1);
    v1::Window* window = batch->mutable_window();
    window->set_start_boot_ns(seq * 1'000'000'000);
    window->set_end_boot_ns((seq + 1) * 1'000'000'000);
    window->set_realtime_offset_ns(absl::GetCurrentTimeNanos() - 60'000'000'000);
    RowBlockBuilder rows;
    for (uint32_t device = 1; device <= kNonsenseDevices; ++device) {
      v1::Device& definition = (*batch->mutable_definitions()->mutable_devices())[device];
      definition.set_name(absl::StrCat("\x1b[2J\u202e,\"\r\n", device));
      definition.set_model(std::string(256, 'm'));
      definition.set_persistent_id(absl::StrCat("\xc2\x9b", device));
      definition.set_alias(std::string(250, '\a'));
      definition.set_stacked(device % 2 == 0);
      for (v1::Operation direction : {v1::OPERATION_READ, v1::OPERATION_WRITE}) {
        v1::CoverageSample* sample = batch->add_coverage();
        sample->set_device(device);
        sample->set_direction(direction);
        sample->set_kernel_bytes(direction == v1::OPERATION_READ ? UINT64_MAX : 0);
        sample->set_lost_bytes(direction == v1::OPERATION_WRITE ? UINT64_MAX : 0);
        sample->set_recorded_bytes(UINT64_MAX);
      }
      BlockRow row;
      row.device = device;
      row.operation = v1::OPERATION_WRITE;
      row.confidence = v1::CONFIDENCE_ESTIMATED;
      row.ios = row.bytes = row.wait_ns = row.io_ns = UINT64_MAX;
      row.wait.Add(3, UINT64_MAX);
      row.io.Add(kHistogramBuckets - 1, UINT64_MAX);
      rows.Add(row);
    }
    batch->set_row_count(kNonsenseDevices);
    batch->set_rows(rows.Finish().SerializeAsString());
    for (const char* name : {"ios_estimated", "ios_estimated_variance"}) {
      v1::LossCounter* loss = batch->add_losses();
      loss->set_name(name);
      loss->set_delta(UINT64_MAX);
    }
    return message;
  }

  Fleet fleet_;
  std::unique_ptr<Daemon> aggregator_;
};

TEST_F(HostilePeerTest, GarbageBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    int fd = Connect();
    std::string bytes(1 + random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 0) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes;
    if (i % 3 == 1) bytes = "GET / HTTP/1.1\r\n\r\n";
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
}

TEST_F(HostilePeerTest, ManyIdleConnections) {
  std::vector<int> fds;
  for (int i = 0; i < 500; ++i) fds.push_back(Connect());
  EXPECT_EQ(fleet_.Cli({"hosts"}).exit_code, 0);
  for (int fd : fds) close(fd);
}

TEST_F(HostilePeerTest, MessagesInTheWrongOrderOrWithWrongIdentity) {
  v1::AgentMessage batch;
  batch.mutable_batch()->set_seq(1);
  EXPECT_EQ(Send({batch}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Send({v1::AgentMessage()}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_FALSE(Send({Hello("../../etc/passwd")}).ok());
  EXPECT_FALSE(Send({Hello("")}).ok());
  EXPECT_FALSE(Send({Hello(std::string(100'000, 'x'))}).ok());
  v1::AgentMessage future = Hello("evil");
  future.mutable_hello()->set_protocol_version(99);
  EXPECT_EQ(Send({future}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(HostilePeerTest, OversizedAndMutatedBatches) {
  v1::AgentMessage big;
  big.mutable_batch()->set_seq(1);
  big.mutable_batch()->set_rows(std::string(128 << 20, 'x'));
  EXPECT_FALSE(Send({Hello("evil"), big}).ok());

  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    v1::AgentMessage message;
    v1::Batch* batch = message.mutable_batch();
    batch->set_seq(random() % 3 == 0 ? random() : 1);
    batch->set_spool_epoch(random() % 4 == 0 ? random() : 1);
    batch->set_dictionary_id(random());
    batch->set_row_count(random() % 2 == 0 ? random() : 1);
    batch->set_rows_plain_bytes(random() % 2 == 0 ? ~uint64_t{0} : random() % 10'000);
    batch->set_encoding(random() % 2 == 0 ? v1::Batch::ENCODING_ZSTD : v1::Batch::ENCODING_PLAIN);
    std::string rows(random() % 5000, '\0');
    for (char& c : rows) c = static_cast<char>(random());
    if (random() % 4 == 0) {
      v1::RowBlock block;
      for (int r = 0; r < 10; ++r) {
        block.add_dirtier_intent_ref(random());
        block.add_ios(random());
        block.add_wait_bucket_delta(random());
      }
      rows = block.SerializeAsString();
    }
    batch->set_rows(rows);
    v1::Window* window = batch->mutable_window();
    window->set_start_boot_ns(random());
    window->set_end_boot_ns(random() % 2 == 0 ? ~uint64_t{0} : random());
    window->set_realtime_offset_ns(random() % 2 == 0 ? INT64_MIN : INT64_MAX);
    (*batch->mutable_definitions()->mutable_intents())[random()].add_frames(rows);
    Send({Hello(absl::StrCat("evil", i % 5)), message});
  }
}

// What is valid by its form and nonsense all the same is stored, and every question about it has an
// answer: no sum begins anew at 0, and no name reaches a terminal as anything but text.
TEST_F(HostilePeerTest, NonsenseThatIsValid) {
  for (const char* host : {"evil1", "evil2"}) {
    ASSERT_TRUE(Send({Hello(host), Nonsense(1), Nonsense(2)}).ok());
  }
  const std::vector<std::vector<std::string>> questions = {
      {"top", "--by", "host,device,confidence"},
      {"top", "--confidence", "estimated", "--by", "device,file", "--layer", "any"},
      {"series", "--by", "confidence"},
      {"coverage", "--verbose"},
      {"hosts"},
      {"hosts", "--devices", "--limit", "5000"},
  };
  for (const std::vector<std::string>& question : questions) {
    for (const char* output : {"table", "csv"}) {
      std::vector<std::string> arguments = question;
      arguments.insert(arguments.end(), {"-o", output});
      const CliResult result = fleet_.Cli(arguments);
      EXPECT_EQ(result.exit_code, 0) << arguments[0] << "\n" << result.err;
      if (output == std::string("csv")) continue;  // as it is, for programs
      EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << result.out;
      EXPECT_EQ(result.out.find("\u202e"), std::string::npos) << result.out;
      EXPECT_EQ(result.out.find("inf"), std::string::npos) << result.out;
      EXPECT_EQ(result.out.find("nan"), std::string::npos) << result.out;
    }
    fleet_.CliJson(question);
  }
  nlohmann::json top = fleet_.CliJson({"top", "--by", "confidence", "--layer", "any"});
  ASSERT_EQ(top["rows"].size(), 1u) << top;
  EXPECT_EQ(top["rows"][0]["confidence"], "estimated");
  for (const char* field : {"ios", "bytes", "written_bytes", "io_ns", "wait_ns", "estimated_ios"}) {
    EXPECT_EQ(top["rows"][0][field], UINT64_MAX) << field;
  }
  EXPECT_GT(top["summary"]["sample_weight"], 0);
  nlohmann::json devices = fleet_.CliJson({"hosts", "--devices", "--limit", "10000"});
  EXPECT_EQ(devices["devices"].size(), 2u * kNonsenseDevices) << devices["summary"];
}

}  // namespace
}  // namespace fleetblame::testing
