/* Connects to a server after the process has changed its root. Prints the libssl result. */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_load_verify_locations(context, words[2], NULL);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(plain, (struct sockaddr *)&address, sizeof address) != 0)
        return 3;
    if (chroot(words[3]) != 0 || chdir("/") != 0)
        return 4;
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, plain);
    SSL_set_tlsext_host_name(ssl, "localhost");
    printf("connected: %d\n", SSL_connect(ssl));
    return 0;
}
