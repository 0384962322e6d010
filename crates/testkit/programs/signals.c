/* Connects with a socket that sends signals (O_ASYNC), and waits for nothing else. Prints whether it is connected.
 *
 * PORT, AUTHORITY: of the server. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGIO);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_load_verify_locations(context, words[2], NULL);
    int plain = socket(AF_INET, SOCK_STREAM, 0), done;
    if (connect(plain, (struct sockaddr *)&address, sizeof address) != 0)
        return 3;
    fcntl(plain, F_SETOWN, getpid());
    fcntl(plain, F_SETFL, O_NONBLOCK | O_ASYNC);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, plain);
    SSL_set_tlsext_host_name(ssl, "localhost");
    while ((done = SSL_connect(ssl)) != 1) {
        struct timespec longest = {.tv_sec = 10};
        if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ || sigtimedwait(&awaited, NULL, &longest) < 0) {
            puts("not connected");
            return 0;
        }
    }
    puts("connected");
    return 0;
}
