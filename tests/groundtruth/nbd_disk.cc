// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/nbd_disk.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/nbd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace fleetblame::testing {
namespace {

constexpr uint64_t kBlockBytes = 512;
// The driver sends no request that is larger.
constexpr uint32_t kMostBytes = 64 << 20;
constexpr int kMostDevices = 16;

bool ReceiveAll(int fd, void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = recv(fd, static_cast<char*>(data) + done, size - done, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) done += static_cast<size_t>(got);
  }
  return true;
}

bool SendAll(int fd, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t sent = send(fd, static_cast<const char*>(data) + done, size - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) done += static_cast<size_t>(sent);
  }
  return true;
}

// 0, or an error number as the protocol has them, which are those of Linux.
uint32_t ReadFile(int file, char* data, uint32_t size, uint64_t at) {
  for (uint32_t done = 0; done < size;) {
    const ssize_t got = pread(file, data + done, size - done, static_cast<off_t>(at + done));
    if (got <= 0) return EIO;
    done += static_cast<uint32_t>(got);
  }
  return 0;
}

uint32_t WriteFile(int file, const char* data, uint32_t size, uint64_t at) {
  for (uint32_t done = 0; done < size;) {
    const ssize_t put = pwrite(file, data + done, size - done, static_cast<off_t>(at + done));
    if (put <= 0) return EIO;
    done += static_cast<uint32_t>(put);
  }
  return 0;
}

// Answers requests until the driver takes its leave or the socket ends.
void Serve(int socket, int file, const std::string& comm) {
  prctl(PR_SET_NAME, comm.c_str());
  std::vector<char> data;
  nbd_request request{};
  while (ReceiveAll(socket, &request, sizeof(request)) &&
         ntohl(request.magic) == NBD_REQUEST_MAGIC) {
    const uint32_t command = ntohl(request.type) & 0xffff;
    const uint32_t size = ntohl(request.len);
    const uint64_t at = be64toh(request.from);
    if (command == NBD_CMD_DISC) return;
    const bool with_data = command == NBD_CMD_READ || command == NBD_CMD_WRITE;
    if (with_data && size > kMostBytes) return;
    data.resize(with_data ? size : 0);
    if (command == NBD_CMD_WRITE && !ReceiveAll(socket, data.data(), size)) return;
    uint32_t error = EINVAL;
    if (command == NBD_CMD_READ) error = ReadFile(file, data.data(), size, at);
    if (command == NBD_CMD_WRITE) error = WriteFile(file, data.data(), size, at);
    if (command == NBD_CMD_FLUSH) error = fdatasync(file) == 0 ? 0 : EIO;
    nbd_reply reply{};
    reply.magic = htonl(NBD_REPLY_MAGIC);
    reply.error = htonl(error);
    std::memcpy(&reply.handle, &request.handle, sizeof(reply.handle));
    if (!SendAll(socket, &reply, sizeof(reply))) return;
    if (command == NBD_CMD_READ && error == 0 && !SendAll(socket, data.data(), size)) return;
  }
}

// The first device without a server, opened.
absl::StatusOr<int> OpenFree(std::string* name) {
  for (int i = 0; i < kMostDevices; ++i) {
    *name = absl::StrCat("nbd", i);
    if (access(absl::StrCat("/sys/block/", *name, "/pid").c_str(), F_OK) == 0) continue;
    const int fd = open(absl::StrCat("/dev/", *name).c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) return fd;
  }
  return absl::NotFoundError("no free /dev/nbd*; load the module nbd");
}

}  // namespace

std::string NbdDisk::Unavailable() {
  if (access("/sys/block/nbd0", F_OK) != 0) return "no /dev/nbd0: the module nbd is not loaded";
  return "";
}

absl::Status NbdDisk::Configure(uint64_t bytes) {
  const struct {
    unsigned long request;
    uint64_t value;
    const char* what;
  } kSteps[] = {
      {NBD_SET_BLKSIZE, kBlockBytes, "set its block size"},
      {NBD_SET_SIZE_BLOCKS, bytes / kBlockBytes, "set its size"},
      {NBD_SET_FLAGS, NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH, "say what its server can"},
      {NBD_SET_SOCK, static_cast<uint64_t>(kernel_end_), "give it its socket"},
  };
  for (const auto& step : kSteps) {
    if (ioctl(device_, step.request, step.value) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("/dev/", name_, ": ", step.what));
    }
  }
  return absl::OkStatus();
}

absl::Status NbdDisk::WaitUntilServed() const {
  const std::string folder = absl::StrCat("/sys/block/", name_);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    std::ifstream file(folder + "/size");
    uint64_t sectors = 0;
    if (access((folder + "/pid").c_str(), F_OK) == 0 && (file >> sectors) && sectors != 0) {
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(absl::StrCat("/dev/", name_, " does not come up"));
}

absl::StatusOr<std::unique_ptr<NbdDisk>> NbdDisk::Create(const std::string& path, uint64_t bytes,
                                                         const std::string& comm) {
  std::unique_ptr<NbdDisk> disk(new NbdDisk);
  disk->file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (disk->file_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("make ", path));
  if (ftruncate(disk->file_, static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("size ", path));
  }
  auto device = OpenFree(&disk->name_);
  if (!device.ok()) return device.status();
  disk->device_ = *device;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "make a pair of sockets");
  }
  disk->kernel_end_ = ends[0];
  disk->server_end_ = ends[1];
  disk->server_ = std::thread(Serve, ends[1], disk->file_, comm);
  if (absl::Status status = disk->Configure(bytes); !status.ok()) return status;
  disk->driver_ = std::thread([fd = disk->device_] {
    prctl(PR_SET_NAME, "nbd-driver");
    ioctl(fd, NBD_DO_IT);
  });
  if (absl::Status status = disk->WaitUntilServed(); !status.ok()) return status;
  return disk;
}

NbdDisk::~NbdDisk() {
  if (device_ >= 0) ioctl(device_, NBD_DISCONNECT);
  if (server_end_ >= 0) shutdown(server_end_, SHUT_RDWR);
  if (driver_.joinable()) driver_.join();
  if (server_.joinable()) server_.join();
  if (device_ >= 0) ioctl(device_, NBD_CLEAR_SOCK);
  for (int fd : {device_, kernel_end_, server_end_, file_}) {
    if (fd >= 0) close(fd);
  }
}

}  // namespace fleetblame::testing
