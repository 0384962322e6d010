/* A client that asks the TLS manager for a connection, and fetches a page over it.
 *
 *   cc -o client client.c -lrejoin -lssl -lcrypto
 *   ./client HOST PORT [MANAGER]
 *
 * The page goes to standard output, what connection it was to standard error. The exit code is the
 * status of the first call that failed. */

#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rejoin.h"

static int complain(const char *what, rejoin_status status)
{
    char line[512];
    rejoin_last_error(line, sizeof line);
    fprintf(stderr, "%s: %s: %s\n", what, rejoin_status_text(status), line);
    return status;
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: %s HOST PORT [MANAGER]\n", arguments[0]);
        return REJOIN_BAD_ARGUMENT;
    }
    signal(SIGPIPE, SIG_IGN); /* Writing to a server that is gone must be an error, and not end the program. */
    char get[1024];
    int bytes = snprintf(get, sizeof get, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", arguments[1]);
    if (bytes < 0 || bytes >= (int)sizeof get)
        return REJOIN_BAD_ARGUMENT;
    rejoin_request request = {
        .struct_size = sizeof request,
        .host = arguments[1],
        .port = strtoul(arguments[2], NULL, 10),
        .alpn = "http/1.1",
        .manager = count > 3 ? arguments[3] : NULL,
        .first = (const uint8_t *)get, /* It goes to the server with the end of the handshake. */
        .first_bytes = (size_t)bytes,
    };
    rejoin_session session = {.struct_size = sizeof session};
    int connection;
    rejoin_status status = rejoin_connect(&request, &connection, &session);
    if (status != REJOIN_OK)
        return complain("connect", status);
    fprintf(stderr, "%s, %s, %s with %s: %s\n", session.resumed ? "resumed" : "full handshake",
            session.version, session.cipher, session.peer, session.why);

    char part[4096];
    ssize_t more;
    while ((more = read(connection, part, sizeof part)) > 0)
        fwrite(part, 1, (size_t)more, stdout);
    close(connection);
    if ((status = rejoin_ended_well(&session)) != REJOIN_OK)
        return complain("end", status);
    return 0;
}
