/* A client of GnuTLS that refuses servers: `gnutls_refusals HOW PORT AUTHORITY`. Prints what it sees. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *name(int error)
{
    return error == 0 ? "success" : gnutls_strerror_name(error);
}

/* Moves the socket in mid-handshake. Its old number is another file's then, which is read. */
static int moved(gnutls_session_t session, int plain)
{
    char byte;
    int other;
    gnutls_handshake(session);
    poll(NULL, 0, 500);
    other = fcntl(plain, F_DUPFD_CLOEXEC, 100);
    close(plain);
    if (open("/dev/zero", O_RDONLY) != plain || read(plain, &byte, 1) != 1)
        exit(2);
    gnutls_transport_set_int(session, other);
    return other;
}

int main(int count, char **words)
{
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    int plain = socket(AF_INET, SOCK_STREAM, 0), done, tries;
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session;

    signal(SIGPIPE, SIG_IGN);
    setbuf(stdout, NULL);
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    if (connect(plain, (struct sockaddr *)&server, sizeof server) != 0)
        return 2;
    fcntl(plain, F_SETFL, O_NONBLOCK);
    gnutls_certificate_allocate_credentials(&credentials);
    if (gnutls_certificate_set_x509_trust_file(credentials, words[3], GNUTLS_X509_FMT_PEM) != 1)
        return 2;
    gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NONBLOCK);
    gnutls_set_default_priority(session);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_server_name_set(session, GNUTLS_NAME_DNS, "localhost", strlen("localhost"));
    gnutls_session_set_verify_cert(session, "localhost", 0);
    gnutls_transport_set_int(session, plain);
    if (strcmp(words[1], "moved") == 0)
        plain = moved(session, plain);
    for (tries = 0; tries < 100; tries++) {
        struct pollfd asked = {.fd = plain, .events = POLLIN};
        done = gnutls_handshake(session);
        if (done == 0 || gnutls_error_is_fatal(done))
            break;
        poll(&asked, 1, 100);
    }
    printf("%s\n", strcmp(words[1], "moved") == 0 && done != 0 ? "refused" : name(done));
    if (strcmp(words[1], "again") == 0)
        printf("again: %s\n", name(gnutls_handshake(session)));
    for (tries = 0; tries < 2; tries++)
        printf("sent: %d\n", gnutls_record_send(session, "GET /", 5) > 0);
    printf("received: %d\n", gnutls_record_recv(session, words[0], 1) > 0);
    gnutls_bye(session, GNUTLS_SHUT_WR);
    gnutls_deinit(session);
    return done == 0 ? 0 : 1;
}
