// SPDX-License-Identifier: Apache-2.0
#include "common/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/process_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"

namespace fleetblame {
namespace {

using ::testing::HasSubstr;

// A plain HTTP/1.0 GET: the test should not trust the library on both ends.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return "cannot connect";
  }
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), ssize_t(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) answer.append(buffer, size_t(n));
  close(fd);
  return answer;
}

TEST(MetricsServer, ServesTheRegistryAndTheProcess) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("rows_total").Register(*registry).Add({}).Increment(42);
  auto server = MetricsServer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer = Get((*server)->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("rows_total 42"));
  EXPECT_THAT(answer, HasSubstr("process_resident_memory_bytes "));
  EXPECT_THAT(answer, HasSubstr("fleetblame_build_info{version="));
}

TEST(MetricsServer, ABarePortIsLoopbackOnly) {
  auto server = MetricsServer::Start("0", std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(server.ok()) << server.status();
  // A second listener on another loopback address with the same port is only
  // possible when the first did not take every address.
  auto other = MetricsServer::Start(absl::StrCat("127.0.0.2:", (*server)->port()),
                                    std::make_shared<prometheus::Registry>());
  EXPECT_TRUE(other.ok()) << other.status();
}

TEST(MetricsServer, ATakenPortSaysSo) {
  auto first = MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>());
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = MetricsServer::Start(absl::StrCat("127.0.0.1:", (*first)->port()),
                                     std::make_shared<prometheus::Registry>());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("is the port in use"));
}

TEST(MetricsServer, RefusesWhatIsNotAnAddress) {
  for (const char* bad : {"", ":9464", "localhost", "127.0.0.1:", "127.0.0.1:99999", "a,b:1",
                          "127.0.0.1:9464s", "::1:9464", "1.2.3.4:-1", "[::1:80"}) {
    auto server = MetricsServer::Start(bad, std::make_shared<prometheus::Registry>());
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ProcessMetrics, ValuesAreThoseOfThisProcess) {
  for (const auto& family : ProcessMetrics().Collect()) {
    ASSERT_EQ(family.metric.size(), 1u);
    const double gauge = family.metric[0].gauge.value;
    if (family.name == "process_resident_memory_bytes") {
      EXPECT_GT(gauge, 1 << 20);
      EXPECT_LT(gauge, 1 << 30);
    } else if (family.name == "process_open_fds") {
      EXPECT_GE(gauge, 1);
      EXPECT_LT(gauge, 200);
    } else if (family.name == "process_start_time_seconds") {
      EXPECT_NEAR(gauge, double(time(nullptr)), 60);
    } else if (family.name == "process_cpu_seconds_total") {
      EXPECT_LT(family.metric[0].counter.value, 60);
    } else {
      EXPECT_EQ(family.name, "fleetblame_build_info");
    }
  }
  EXPECT_EQ(ProcessMetrics().Collect().size(), 5u);
}

}  // namespace
}  // namespace fleetblame
