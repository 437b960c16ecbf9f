// SPDX-License-Identifier: Apache-2.0
#include <linux/falloc.h>
#include <linux/fscrypt.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <vector>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

void WriteRange(const File& file, Buffer* buffer, uint64_t at, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += buffer->size()) {
    file.Check(pwrite(file.fd(), buffer->data(), buffer->size(), static_cast<off_t>(at + done)) ==
                   static_cast<ssize_t>(buffer->size()),
               "pwrite");
  }
}

// Space first, data later.
uint64_t Fallocate(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  file.Check(fallocate(file.fd(), 0, 0, static_cast<off_t>(o.bytes)) == 0, "allocate");
  Buffer buffer(o.block);
  WriteRange(file, &buffer, 0, o.bytes);
  return o.bytes;
}

// Writes all, and takes every other 64 KiB out again before it reaches the disk.
uint64_t Punch(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer buffer(o.block);
  WriteRange(file, &buffer, 0, o.bytes);
  constexpr uint64_t kHole = 64 * 1024;
  for (uint64_t at = 0; at < o.bytes; at += 2 * kHole) {
    file.Check(fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(at), kHole) == 0,
               "punch a hole into");
  }
  return o.bytes / 2;
}

// Writes all, cuts half off, grows it again without data, and writes the last quarter.
uint64_t Truncate(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer buffer(o.block);
  WriteRange(file, &buffer, 0, o.bytes);
  file.Check(ftruncate(file.fd(), static_cast<off_t>(o.bytes / 2)) == 0, "shorten");
  file.Check(ftruncate(file.fd(), static_cast<off_t>(o.bytes)) == 0, "lengthen");
  WriteRange(file, &buffer, o.bytes / 4 * 3, o.bytes / 4);
  return o.bytes / 4 * 3;
}

// One file stays; another of the same size is gone before it reaches the disk.
uint64_t Unlink(const Options& o) {
  const std::string gone = o.path + ".gone";
  Buffer buffer(o.block);
  {
    File file(gone, O_WRONLY | O_CREAT);
    WriteRange(file, &buffer, 0, o.bytes);
  }
  if (unlink(gone.c_str()) != 0) Die("unlink", gone);
  File file(o.path, O_WRONLY | O_CREAT);
  WriteRange(file, &buffer, 0, o.bytes);
  return o.bytes;
}

// Every fourth page only.
uint64_t Sparse(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer buffer(kPage);
  for (uint64_t done = 0; done < o.bytes; done += kPage) WriteRange(file, &buffer, 4 * done, kPage);
  return o.bytes;
}

// Every other page, from `offset` on, of a file that was read before: that leaves large folios in
// the page cache where the filesystem has them.
uint64_t EveryOther(const Options& o) {
  File file(o.path, O_RDWR);
  Buffer buffer(1 << 20);
  for (uint64_t at = 0; at < 2 * o.bytes; at += buffer.size()) {
    file.Check(pread(file.fd(), buffer.data(), buffer.size(), static_cast<off_t>(at)) ==
                   static_cast<ssize_t>(buffer.size()),
               "read");
  }
  Buffer page(kPage);
  for (uint64_t done = 0; done < o.bytes; done += kPage) {
    WriteRange(file, &page, o.offset + 2 * done, kPage);
  }
  return o.bytes;
}

// 512 bytes at `offset` of each page: what another process leaves of it is for that other to write.
uint64_t SubPage(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer buffer(512);
  for (uint64_t at = 0; at < o.bytes; at += kPage) WriteRange(file, &buffer, at + o.offset, 512);
  // A block of 1 KiB for both is the least that a filesystem writes.
  return o.bytes / 8;
}

// --- Metadata alone: nothing here is file data. ---

void MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) Die("mkdir", path);
}

std::string Numbered(const std::string& directory, const char* prefix, uint32_t number) {
  return directory + "/" + prefix + std::to_string(number);
}

uint64_t Directories(const Options& o) {
  MakeDirectory(o.path);
  for (uint32_t i = 0; i < o.files; ++i) MakeDirectory(Numbered(o.path, "a-directory-", i));
  return 0;
}

uint64_t Links(const Options& o) {
  MakeDirectory(o.path);
  const std::string first = o.path + "/first";
  { File file(first, O_WRONLY | O_CREAT); }
  for (uint32_t i = 0; i < o.files; ++i) {
    const std::string name = Numbered(o.path, "link-", i);
    // An inode has a limit of links on some filesystems; symbolic ones have none.
    if (i % 2 == 0 && symlink("first", name.c_str()) != 0) Die("symlink", name);
    if (i % 2 == 1 && link(first.c_str(), name.c_str()) != 0) Die("link", name);
  }
  return 0;
}

uint64_t Attributes(const Options& o) {
  MakeDirectory(o.path);
  std::vector<char> value(900, 'v');
  for (uint32_t i = 0; i < o.files; ++i) {
    const std::string name = Numbered(o.path, "f", i);
    File file(name, O_WRONLY | O_CREAT);
    file.Check(fsetxattr(file.fd(), "user.fleetblame", value.data(), value.size(), 0) == 0,
               "set an attribute of");
  }
  return 0;
}

// An encrypted directory with one file in it.
uint64_t Encrypted(const Options& o) {
  MakeDirectory(o.path);
  File directory(o.path, O_RDONLY | O_DIRECTORY);
  std::vector<char> memory(sizeof(fscrypt_add_key_arg) + FSCRYPT_MAX_KEY_SIZE);
  auto* key = reinterpret_cast<fscrypt_add_key_arg*>(memory.data());
  key->key_spec.type = FSCRYPT_KEY_SPEC_TYPE_DESCRIPTOR;
  std::memset(key->key_spec.u.descriptor, 7, FSCRYPT_KEY_DESCRIPTOR_SIZE);
  key->raw_size = FSCRYPT_MAX_KEY_SIZE;
  for (uint32_t i = 0; i < FSCRYPT_MAX_KEY_SIZE; ++i) key->raw[i] = static_cast<uint8_t>(i * 7);
  directory.Check(ioctl(directory.fd(), FS_IOC_ADD_ENCRYPTION_KEY, key) == 0, "add a key to");
  fscrypt_policy_v1 policy{};
  policy.version = FSCRYPT_POLICY_V1;
  policy.contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS;
  policy.filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS;
  policy.flags = FSCRYPT_POLICY_FLAGS_PAD_32;
  std::memset(policy.master_key_descriptor, 7, FSCRYPT_KEY_DESCRIPTOR_SIZE);
  directory.Check(ioctl(directory.fd(), FS_IOC_SET_ENCRYPTION_POLICY, &policy) == 0, "encrypt");
  File file(o.path + "/f", O_WRONLY | O_CREAT);
  Buffer buffer(o.block);
  WriteRange(file, &buffer, 0, o.bytes);
  return o.bytes;
}

// A quarter of each block is noise, and the rest nothing.
uint64_t Compressible(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer noise(o.bytes / 4);
  Buffer buffer(o.block);
  std::memset(buffer.data(), 'z', o.block);
  for (uint64_t at = 0; at < o.bytes; at += o.block) {
    std::memcpy(buffer.data(), noise.data() + at / 4, o.block / 4);
    WriteRange(file, &buffer, at, o.block);
  }
  return o.bytes / 4;
}

}  // namespace

Modes ChangeModes() {
  return {
      {"fallocate", Fallocate}, {"punch", Punch},
      {"truncate", Truncate},   {"unlink", Unlink},
      {"sparse", Sparse},       {"every-other", EveryOther},
      {"sub-page", SubPage},    {"directories", Directories},
      {"links", Links},         {"attributes", Attributes},
      {"encrypted", Encrypted}, {"compressible", Compressible},
  };
}

}  // namespace fleetblame::testing
