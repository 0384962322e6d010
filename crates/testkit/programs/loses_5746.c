/* A GnuTLS server of TLS 1.2 that loses secure renegotiation (RFC 5746), as after an update: CERTIFICATE KEY FILE.
 * Prints its port. It supports it as long as FILE is there, and its ticket key stays the same. */

#include "gnutls_server.h"

int main(int count, char **words) {
  static const char *priorities[] = {
    "NORMAL:-VERS-TLS1.3:%DISABLE_SAFE_RENEGOTIATION",
    "NORMAL:-VERS-TLS1.3",
  };
  gnutls_certificate_credentials_t certificate;
  gnutls_datum_t tickets;
  int listener, client;
  if (count != 4 || !(certificate = certified(words[1], words[2])))
    return 2;
  if (gnutls_session_ticket_key_generate(&tickets) < 0)
    return 3;
  if ((listener = listening()) < 0)
    return 4;
  while ((client = accept(listener, NULL, NULL)) >= 0) {
    gnutls_session_t session;
    gnutls_init(&session, GNUTLS_SERVER);
    gnutls_priority_set_direct(session, priorities[access(words[3], F_OK) == 0], NULL);
    gnutls_session_ticket_enable_server(session, &tickets);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificate);
    answer(session, client);
  }
  return 0;
}
