/* Connects to a server after the process has changed its root. Prints the libssl result. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client.h"

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    SSL_CTX *context = trusting(words[2]);
    int plain = connected_to(words[1]);
    if (chroot(words[3]) != 0 || chdir("/") != 0)
        return 4;
    SSL *ssl = over(plain, context);
    printf("connected: %d\n", SSL_connect(ssl));
    return 0;
}
