/* A GnuTLS server with a certificate that also takes keys, and knows one user's: CERTIFICATE KEY USERS.
 * Prints its port, and answers every client whose handshake succeeds. */

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <unistd.h>

static void serve(gnutls_certificate_credentials_t certificate, gnutls_psk_server_credentials_t keys, int socket) {
  static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\na page\n";
  gnutls_session_t session;
  char request[4096];
  int done;
  gnutls_init(&session, GNUTLS_SERVER);
  gnutls_priority_set_direct(session, "NORMAL:+PSK:+DHE-PSK:+ECDHE-PSK", NULL);
  gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificate);
  gnutls_credentials_set(session, GNUTLS_CRD_PSK, keys);
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
  gnutls_psk_server_credentials_t keys;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), client;
  if (count != 4)
    return 2;
  gnutls_certificate_allocate_credentials(&certificate);
  if (gnutls_certificate_set_x509_key_file(certificate, words[1], words[2], GNUTLS_X509_FMT_PEM) < 0)
    return 3;
  gnutls_psk_allocate_server_credentials(&keys);
  if (gnutls_psk_set_server_credentials_file(keys, words[3]) < 0)
    return 4;
  if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16))
    return 5;
  getsockname(listener, (struct sockaddr *)&address, &length);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  while ((client = accept(listener, NULL, NULL)) >= 0)
    serve(certificate, keys, client);
  return 0;
}
