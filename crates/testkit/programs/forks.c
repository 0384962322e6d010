/* Forks again and again while another thread makes the process's first connection. Each child makes one, too. Prints
 * the number of children that had to be killed. */
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 200, LONGEST_MS = 10000 };

static SSL_CTX *context;
static atomic_int begins;

static void *connects(void *unused)
{
    begins = 1;
    SSL *ssl = SSL_new(context);
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    SSL_free(ssl);
    return unused;
}

static int hangs(pid_t child)
{
    int status;
    for (int waited = 0; waited < LONGEST_MS; waited++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return 0;
        poll(NULL, 0, 1);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 1;
}

int main(void)
{
    static pid_t children[FORKS];
    pthread_t thread;
    int hung = 0;
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (pthread_create(&thread, NULL, connects, NULL) != 0)
        return 1;
    while (!begins)
        ;
    for (int at = 0; at < FORKS; at++) {
        children[at] = fork();
        if (children[at] == 0) {
            SSL_free(SSL_new(context));
            _exit(0);
        }
    }
    for (int at = 0; at < FORKS; at++)
        hung += children[at] > 0 && hangs(children[at]);
    pthread_join(thread, NULL);
    printf("%d\n", hung);
    return 0;
}
