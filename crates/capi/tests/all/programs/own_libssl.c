/* A program with libssl; a library that it loads later, which has a libssl of its own; and that. */

#ifdef OWN
void *SSL_new(void *context);

void *SSL_new(void *context)
{
    return (char *)context + 42;
}
#elif defined PLUGIN
void *SSL_new(void *context);
int plugin_works(void);

int plugin_works(void)
{
    char context = 0, *made = SSL_new(&context);
    return made == &context + 42;
}
#else
#include <dlfcn.h>
#include <stddef.h>

#include <openssl/ssl.h>

static int own_works(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *connection = SSL_new(context);
    int works = connection != NULL && SSL_get_SSL_CTX(connection) == context;
    SSL_free(connection);
    SSL_CTX_free(context);
    return works;
}

int main(void)
{
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
    int (*plugin_works)(void);
    if (plugin == NULL)
        return 1;
    *(void **)&plugin_works = dlsym(plugin, "plugin_works");
    for (int round = 0; round < 3; round++)
        if (plugin_works == NULL || !plugin_works() || !own_works())
            return 2;
    return 0;
}
#endif
