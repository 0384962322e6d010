/* Makes three connections that connect to nothing. */

#include <openssl/ssl.h>

int main(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    for (int left = 3; left > 0; left--) {
        SSL *connection = SSL_new(context);
        if (connection == NULL)
            return 1;
        SSL_free(connection);
    }
    SSL_CTX_free(context);
    return 0;
}
