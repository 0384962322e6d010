/* The beginning of a GnuTLS server on loopback that answers every client whose handshake succeeds. */

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <unistd.h>

/* Shakes hands with a client, answers its request, and ends. */
static void answer(gnutls_session_t session, int socket) {
  static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\na page\n";
  char request[4096];
  int done;
  gnutls_transport_set_int(session, socket);
  do
    done = gnutls_handshake(session);
  while (done < 0 && !gnutls_error_is_fatal(done));
  if (done < 0)
    gnutls_alert_send_appropriate(session, done);
  else if (gnutls_record_recv(session, request, sizeof request) > 0) {
    gnutls_record_send(session, page, sizeof page - 1);
    gnutls_bye(session, GNUTLS_SHUT_WR);
  }
  gnutls_deinit(session);
  close(socket);
}

/* Reads a certificate and its key. Returns NULL if they cannot be used. */
static gnutls_certificate_credentials_t certified(const char *certificate, const char *key) {
  gnutls_certificate_credentials_t made;
  gnutls_certificate_allocate_credentials(&made);
  return gnutls_certificate_set_x509_key_file(made, certificate, key, GNUTLS_X509_FMT_PEM) < 0 ? NULL : made;
}

/* Listens on a free port, and prints it. Returns the socket, or -1. */
static int listening(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16))
    return -1;
  getsockname(listener, (struct sockaddr *)&address, &length);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return listener;
}
