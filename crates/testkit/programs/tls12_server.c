/* A GnuTLS server of TLS 1.2 with priorities that may change, as after an update: CERTIFICATE KEY FILE.
 * Prints its port. FILE holds more priorities, read for each client; its ticket key stays the same. */

#include "gnutls_server.h"

int main(int count, char **words) {
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
    char more[128] = "", priorities[256];
    gnutls_session_t session;
    FILE *file = fopen(words[3], "r");
    if (!file || fscanf(file, "%127s", more) != 1)
      return 5;
    fclose(file);
    snprintf(priorities, sizeof priorities, "NORMAL:-VERS-TLS1.3:%s", more);
    gnutls_init(&session, GNUTLS_SERVER);
    if (gnutls_priority_set_direct(session, priorities, NULL) < 0)
      return 6;
    gnutls_session_ticket_enable_server(session, &tickets);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificate);
    answer(session, client);
  }
  return 0;
}
