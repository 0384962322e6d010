/* A GnuTLS server of TLS 1.2 that loses secure renegotiation (RFC 5746), as after an update: CERTIFICATE KEY FILE.
 * Prints its port. It supports it as long as FILE is there, and its ticket key stays the same. */

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <unistd.h>

static void serve(gnutls_certificate_credentials_t certificate, gnutls_datum_t *tickets, const char *file, int socket) {
  static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\na page\n";
  static const char *priorities[] = {
    "NORMAL:-VERS-TLS1.3:%DISABLE_SAFE_RENEGOTIATION",
    "NORMAL:-VERS-TLS1.3",
  };
  gnutls_session_t session;
  char request[4096];
  int done;
  gnutls_init(&session, GNUTLS_SERVER);
  gnutls_priority_set_direct(session, priorities[access(file, F_OK) == 0], NULL);
  gnutls_session_ticket_enable_server(session, tickets);
  gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificate);
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

int main(int count, char **words) {
  gnutls_certificate_credentials_t certificate;
  gnutls_datum_t tickets;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), client;
  if (count != 4)
    return 2;
  gnutls_certificate_allocate_credentials(&certificate);
  if (gnutls_certificate_set_x509_key_file(certificate, words[1], words[2], GNUTLS_X509_FMT_PEM) < 0)
    return 3;
  if (gnutls_session_ticket_key_generate(&tickets) < 0)
    return 4;
  if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16))
    return 5;
  getsockname(listener, (struct sockaddr *)&address, &length);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  while ((client = accept(listener, NULL, NULL)) >= 0)
    serve(certificate, &tickets, words[3], client);
  return 0;
}
