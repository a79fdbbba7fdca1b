#include "engine/cache/slot_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "error.h"
#include "platform/files.h"

namespace eliza {
namespace {

constexpr char magic[] = {'E', 'L', 'I', 'Z', 'A', 'S', 'L', 'T'};
constexpr uint32_t version = 1;

class Fnv1a {
public:
    void add(const void * data, size_t size) {
        const auto * bytes = static_cast<const uint8_t *>(data);
        for (size_t i = 0; i < size; ++i) {
            hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
        }
    }
    uint64_t value() const { return hash_; }

private:
    uint64_t hash_ = 0xcbf29ce484222325u;
};

Error fault(const std::string & path, const std::string & what) {
    return {ELIZA_ERR_FFI_FAULT, "slot file " + path + ": " + what};
}
Error system_fault(const std::string & path, const char * doing) {
    return fault(path, std::string(doing) + ": " + std::strerror(errno));
}

// A file beside another that this process alone is writing to. A process that was killed leaves its own behind, and
// no lock on it: whoever makes the next one for the same path removes it.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string & path) : file_(nullptr, std::fclose) {
        const std::filesystem::path target(path);
        const std::string begin = target.filename().string() + ".";
        remove_abandoned(target.parent_path(), begin);
        static std::atomic<uint64_t> counter{0};
        for (int attempt = 0; file_ == nullptr && attempt < 10; ++attempt) {
            const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
            path_ = target.parent_path() / (begin + std::to_string(now) + "-" + std::to_string(++counter) + ending);
            file_ = create_file_in_use(path_);
        }
        if (file_ == nullptr) {
            throw system_fault(path, "cannot be written");
        }
    }
    ~TemporaryFile() {
        if (!path_.empty()) {
            file_.reset();
            std::error_code error;
            std::filesystem::remove(path_, error);
        }
    }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile & operator=(const TemporaryFile &) = delete;

    std::FILE * get() const { return file_.get(); }

    void rename_to(const std::filesystem::path & target, std::error_code & error) {
        // It is in use until it has its own name: before that it would be taken for abandoned.
        if (!can_rename_open_files()) {
            file_.reset();
        }
        std::filesystem::rename(path_, target, error);
        if (!error) {
            path_.clear();
        }
    }

private:
    static constexpr const char * ending = ".part";

    static void remove_abandoned(const std::filesystem::path & folder, const std::string & begin) {
        std::vector<std::filesystem::path> found;
        try {
            // The overload that takes an error_code ends the process where memory runs out.
            for (const auto & entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder)) {
                found.push_back(entry.path());
            }
        } catch (const std::filesystem::filesystem_error &) {
            return;  // whoever writes there says why not
        }
        for (const std::filesystem::path & path : found) {
            const std::string name = path.filename().string();
            if (name.size() > begin.size() && name.compare(0, begin.size(), begin) == 0 &&
                name.find_first_not_of("0123456789-", begin.size()) == name.size() - std::strlen(ending) &&
                name.compare(name.size() - std::strlen(ending), std::string::npos, ending) == 0) {
                remove_unless_in_use(path);
            }
        }
    }

    File file_;
    std::filesystem::path path_;  // empty: it has another name now
};

// Writes beside the file, and renames when all of it is on disk.
class Writer {
public:
    explicit Writer(const std::string & path) : path_(path), target_(path), file_(checked(path)) {}

    void write(const void * data, size_t size) {
        hash_.add(data, size);
        write_raw(data, size);
    }
    void write_part(const void * data, size_t size) {
        const uint64_t length = size;
        write(&length, sizeof length);
        write(data, size);
    }
    void finish() {
        const uint64_t hash = hash_.value();
        write_raw(&hash, sizeof hash);
        if (std::fflush(file_.get()) != 0) {
            throw system_fault(path_, "cannot be written");
        }
        if (!wait_until_on_disk(file_.get())) {
            throw system_fault(path_, "cannot be written");
        }
        std::error_code error;
        file_.rename_to(target_, error);
        if (error) {
            throw fault(path_, "cannot be put in its place: " + error.message());
        }
    }

private:
    void write_raw(const void * data, size_t size) {
        if (std::fwrite(data, 1, size, file_.get()) != size) {
            throw system_fault(path_, "cannot be written");
        }
    }

    static const std::string & checked(const std::string & path) {
        std::error_code error;
        if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
            throw fault(path, "cannot be written: something other than a file is there");
        }
        return path;
    }

    const std::string path_;
    const std::filesystem::path target_;
    TemporaryFile file_;
    Fnv1a hash_;
};

// Reads out of bytes in memory, and never past them.
class Reader {
public:
    Reader(const std::string & path, const std::vector<uint8_t> & bytes, size_t end)
        : path_(path), bytes_(bytes), end_(end) {}

    void read(void * out, size_t size) {
        if (size > end_ - at_) {
            throw fault(path_, "cut short, or damaged");
        }
        std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(at_), size, static_cast<uint8_t *>(out));
        at_ += size;
    }
    template <typename T>
    T number() {
        T value{};
        read(&value, sizeof value);
        return value;
    }
    std::vector<uint8_t> part() {
        const auto length = number<uint64_t>();
        if (length > end_ - at_) {
            throw fault(path_, "cut short, or damaged");
        }
        std::vector<uint8_t> data(length);
        read(data.data(), data.size());
        return data;
    }

    bool is_at_end() const { return at_ == end_; }

private:
    const std::string & path_;
    const std::vector<uint8_t> & bytes_;
    size_t end_;
    size_t at_ = 0;
};

std::vector<uint8_t> read_all(const std::string & path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
        throw fault(path, "cannot be read: " + error.message());
    }
    const File file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (file == nullptr) {
        throw system_fault(path, "cannot be read");
    }
    // First that it is one of ours: another may be larger than the memory.
    char begin[sizeof magic] = {};
    if (std::fread(begin, 1, sizeof begin, file.get()) != sizeof begin ||
        std::memcmp(begin, magic, sizeof magic) != 0) {
        throw fault(path, "not a slot file");
    }
    std::vector<uint8_t> bytes(size);
    if (seek(file.get(), 0) != 0 || std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
        throw system_fault(path, "cannot be read");
    }
    return bytes;
}

}  // namespace

void write_slot_file(const std::string & path, const SlotFile & file) {
    Writer writer(path);
    writer.write(magic, sizeof magic);
    writer.write(&version, sizeof version);
    writer.write_part(file.fingerprint.data(), file.fingerprint.size());
    writer.write_part(file.tokens.data(), file.tokens.size() * sizeof(llama_token));
    writer.write_part(file.state.data(), file.state.size());
    writer.finish();
}

SlotFile read_slot_file(const std::string & path, const std::string & fingerprint) {
    const std::vector<uint8_t> bytes = read_all(path);
    constexpr size_t hash_size = sizeof(uint64_t);
    if (bytes.size() < sizeof magic + sizeof version + hash_size) {
        throw fault(path, "cut short, or damaged");
    }
    const size_t end = bytes.size() - hash_size;
    Reader reader(path, bytes, end);
    reader.number<uint64_t>();  // the magic
    if (const auto found = reader.number<uint32_t>(); found != version) {
        throw fault(path, "version " + std::to_string(found) + " of the format; this library reads version " +
                              std::to_string(version));
    }
    Fnv1a hash;
    hash.add(bytes.data(), end);
    uint64_t written = 0;
    std::memcpy(&written, bytes.data() + end, hash_size);
    if (hash.value() != written) {
        throw fault(path, "cut short, or damaged");
    }
    SlotFile file;
    const std::vector<uint8_t> name = reader.part();
    file.fingerprint.assign(name.begin(), name.end());
    if (file.fingerprint != fingerprint) {
        throw fault(path, "of another model or cache: \"" + file.fingerprint + "\", not \"" + fingerprint + "\"");
    }
    const std::vector<uint8_t> tokens = reader.part();
    if (tokens.size() % sizeof(llama_token) != 0) {
        throw fault(path, "cut short, or damaged");
    }
    file.tokens.resize(tokens.size() / sizeof(llama_token));
    std::copy(tokens.begin(), tokens.end(), reinterpret_cast<uint8_t *>(file.tokens.data()));
    file.state = reader.part();
    if (!reader.is_at_end()) {
        throw fault(path, "cut short, or damaged");
    }
    return file;
}

std::string fingerprint_of_file(const std::string & path) {
    constexpr uint64_t n_samples = 256;
    constexpr size_t sample_bytes = 4096;
    const File file(std::fopen(path.c_str(), "rb"), std::fclose);
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (file == nullptr || error) {
        return "";
    }
    Fnv1a hash;
    std::vector<char> bytes(sample_bytes);
    for (uint64_t i = 0; i < n_samples; ++i) {
        if (seek(file.get(), size / n_samples * i) != 0) {
            return "";
        }
        hash.add(bytes.data(), std::fread(bytes.data(), 1, bytes.size(), file.get()));
    }
    char text[64];
    std::snprintf(text, sizeof text, "%llu-%016llx", static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(hash.value()));
    return text;
}

}  // namespace eliza
