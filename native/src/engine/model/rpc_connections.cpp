#include "engine/model/rpc_connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <fcntl.h>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>

#include "engine/model/rpc_request.h"
#include "error.h"
#include "ggml-rpc.h"
#include "platform/process.h"
#include "transport.h"

static_assert(eliza::RpcRequest::hello_answer_size == 4 + RPC_CONN_CAPS_SIZE);

namespace eliza {
namespace {

constexpr int connect_limit_ms = 10 * 1000;
constexpr int answer_limit_s = 600;  // a pass may take long; a lost machine is noticed sooner
constexpr int peer_gone_s = 30;

struct Failure {
    std::string reason;
    bool had_answered;
};

GlobalMutex failures_mutex;
std::map<std::string, Failure> failures;

void note_failure(const std::string & endpoint, const std::string & reason, bool had_answered) {
    const std::lock_guard<GlobalMutex> lock(failures_mutex);
    failures.emplace(endpoint, Failure{reason, had_answered});
}

Error lost(const std::string & endpoint, const Failure & failure) {
    return Error(ELIZA_ERR_FFI_FAULT, "RPC server " + endpoint + ": " + failure.reason +
                                          (failure.had_answered ? "; restart this program to use it again" : ""));
}

void set_int(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); }

void set_limits(int fd) {
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE)
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, peer_gone_s / 3);
#elif defined(TCP_KEEPALIVE)
    set_int(fd, IPPROTO_TCP, TCP_KEEPALIVE, peer_gone_s / 3);
#endif
#if defined(TCP_KEEPINTVL)
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, peer_gone_s / 6);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
#endif
#if defined(TCP_USER_TIMEOUT)
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, peer_gone_s * 1000);
#endif
#if defined(SO_NOSIGPIPE)
    set_int(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    const timeval limit = {answer_limit_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

// Connects within the time limit. Returns 0 or an errno value.
int connect_within(int fd, const addrinfo & address) {
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    int error = 0;
    if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            pollfd waiting = {fd, POLLOUT, 0};
            error = ETIMEDOUT;
            if (poll(&waiting, 1, connect_limit_ms) == 1) {
                socklen_t size = sizeof(error);
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
    }
    fcntl(fd, F_SETFL, flags);
    return error;
}

// Returns a connected socket, or -1 and sets `reason`.
int open_connection(const char * host, int port, std::string & reason) {
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo * list = nullptr;
    if (const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &list); error != 0) {
        reason = std::string("cannot be looked up: ") + gai_strerror(error);
        return -1;
    }
    int connected = -1;
    for (const addrinfo * address = list; address != nullptr && connected < 0; address = address->ai_next) {
        const int fd = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
        const int error = fd < 0 ? errno : connect_within(fd, *address);
        if (error == 0) {
            set_limits(fd);
            connected = fd;
        } else {
            reason = std::string("cannot be reached: ") + std::strerror(error);
            if (fd >= 0) {
                close(fd);
            }
        }
    }
    freeaddrinfo(list);
    return connected;
}

}  // namespace

void check_rpc_connections(const Endpoints & endpoints) {
    const std::lock_guard<GlobalMutex> lock(failures_mutex);
    for (const std::string & endpoint : endpoints) {
        if (const auto failed = failures.find(endpoint); failed != failures.end()) {
            throw lost(endpoint, failed->second);
        }
    }
}

void forget_failed_attempt(const std::string & endpoint) {
    const std::lock_guard<GlobalMutex> lock(failures_mutex);
    if (const auto failed = failures.find(endpoint); failed != failures.end()) {
        if (failed->second.had_answered) {
            throw lost(endpoint, failed->second);
        }
        failures.erase(failed);
    }
}

}  // namespace eliza

// The connection as seen by ggml's client. It never fails; see rpc_connections.h.
struct socket_t::impl {
    std::string endpoint;
    int fd = -1;
    bool greeted = false;
    bool awaits_size = true;  // the next bytes received are the size of an answer
    eliza::RpcRequest request;

    ~impl() { disconnect(); }

    void disconnect() {
        if (fd >= 0) {
            close(fd);
            fd = -1;
        }
    }

    void fail(const std::string & reason) {
        disconnect();
        eliza::note_failure(endpoint, reason, greeted);
    }

    void fail_with_errno(ssize_t result) {
        if (result == 0) {
            fail("closed the connection");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            fail("did not answer for " + std::to_string(eliza::answer_limit_s) + " s");
        } else {
            fail(std::string("the connection broke: ") + std::strerror(errno));
        }
    }

    // Repeats the system call until all bytes are transferred. Returns false if the connection is broken.
    template <class Byte, class Call>
    bool transfer(Byte * data, size_t size, const Call & call) {
        while (fd >= 0 && size > 0) {
            const ssize_t done = call(data, std::min(size, MAX_CHUNK_SIZE));
            if (done > 0) {
                data += done;
                size -= static_cast<size_t>(done);
            } else if (done == 0 || errno != EINTR) {
                fail_with_errno(done);
            }
        }
        return fd >= 0;
    }

    void receive(void * data, size_t size) {
        transfer(static_cast<char *>(data), size, [&](char * at, size_t n) { return recv(fd, at, n, 0); });
    }

    void receive_size(void * data, size_t size) {
        uint64_t stated = 0;
        receive(&stated, sizeof(stated));
        if (fd >= 0 && stated != request.answer_size()) {
            fail("answered with " + std::to_string(stated) + " bytes, expected " +
                 std::to_string(request.answer_size()));
        }
        stated = request.answer_size();
        std::memcpy(data, &stated, std::min(size, sizeof(stated)));
    }

    void receive_answer(void * data, size_t size) {
        receive(data, size);
        if (fd >= 0 && request.is_hello()) {
            const uint8_t * version = static_cast<const uint8_t *>(data);
            if (version[0] != RPC_PROTO_MAJOR_VERSION || version[1] > RPC_PROTO_MINOR_VERSION) {
                fail("has version " + std::to_string(version[0]) + "." + std::to_string(version[1]) +
                     " of the RPC protocol, expected " + std::to_string(RPC_PROTO_MAJOR_VERSION) + "." +
                     std::to_string(RPC_PROTO_MINOR_VERSION));
            }
        }
        greeted = greeted || fd >= 0;
        if (fd < 0) {
            request.make_up(data, size);
        }
    }
};

socket_t::socket_t(std::unique_ptr<impl> p) : pimpl(std::move(p)) {}
socket_t::~socket_t() = default;

bool socket_t::send_data(const void * data, size_t size) {
    pimpl->request.add(data, size);
#if defined(MSG_NOSIGNAL)
    constexpr int flags = MSG_NOSIGNAL;
#else
    constexpr int flags = 0;
#endif
    pimpl->transfer(static_cast<const char *>(data), size,
                    [&](const char * at, size_t n) { return send(pimpl->fd, at, n, flags); });
    return true;
}

bool socket_t::flush() {
    pimpl->request.end();
    pimpl->awaits_size = true;
    return true;
}

bool socket_t::recv_data(void * data, size_t size) {
    if (pimpl->awaits_size) {
        pimpl->receive_size(data, size);
    } else {
        pimpl->receive_answer(data, size);
    }
    pimpl->awaits_size = !pimpl->awaits_size;
    return true;
}

// Only TCP is supported.
void socket_t::get_caps(uint8_t * local_caps) { std::memset(local_caps, 0, RPC_CONN_CAPS_SIZE); }
void socket_t::update_caps(const uint8_t *) {}

socket_ptr socket_t::connect(const char * host, int port) {
    auto connection = std::make_unique<impl>();
    connection->endpoint = std::string(host) + ":" + std::to_string(port);
    std::string reason;
    connection->fd = eliza::open_connection(host, port, reason);
    if (connection->fd < 0) {
        connection->fail(reason);
    }
    return socket_ptr(new socket_t(std::move(connection)));
}

// This library is only a client; the program rpc-server uses ggml's own transport.
socket_ptr socket_t::create_server(const char *, int) { return nullptr; }
socket_ptr socket_t::accept() { return nullptr; }

bool rpc_transport_init() { return true; }
void rpc_transport_shutdown() {}
