/* A GnuTLS server with a certificate that also takes keys, and knows one user's: CERTIFICATE KEY USERS.
 * Prints its port, and answers every client whose handshake succeeds. */

#include "gnutls_server.h"

int main(int count, char **words) {
  gnutls_certificate_credentials_t certificate;
  gnutls_psk_server_credentials_t keys;
  int listener, client;
  if (count != 4 || !(certificate = certified(words[1], words[2])))
    return 2;
  gnutls_psk_allocate_server_credentials(&keys);
  if (gnutls_psk_set_server_credentials_file(keys, words[3]) < 0)
    return 3;
  if ((listener = listening()) < 0)
    return 4;
  while ((client = accept(listener, NULL, NULL)) >= 0) {
    gnutls_session_t session;
    gnutls_init(&session, GNUTLS_SERVER);
    gnutls_priority_set_direct(session, "NORMAL:+PSK:+DHE-PSK:+ECDHE-PSK", NULL);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificate);
    gnutls_credentials_set(session, GNUTLS_CRD_PSK, keys);
    answer(session, client);
  }
  return 0;
}
