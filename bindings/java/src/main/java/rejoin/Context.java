package rejoin;

import java.security.GeneralSecurityException;
import java.security.KeyManagementException;
import java.security.KeyStore;
import java.security.SecureRandom;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLContextSpi;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocketFactory;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** A context of the JDK's, whose client sockets and engines are the manager's where possible. */
public class Context extends SSLContextSpi {
  /** The name of the JDK's context: it offers the versions that the program asks for by that name. */
  private final String protocol;
  private SSLContext jdk;
  private Trust trust;

  /** Makes the context {@code TLS}, for {@link SSLContext#getInstance}. */
  public Context() {
    this("TLS");
  }

  private Context(String protocol) {
    this.protocol = protocol;
  }

  /** The context {@code TLSv1.2}, whose connections are of that version unless the program chooses others. */
  public static final class Tls12 extends Context {
    /** Makes the context, for {@link SSLContext#getInstance}. */
    public Tls12() {
      super("TLSv1.2");
    }
  }

  /** The context {@code TLSv1.3}. */
  public static final class Tls13 extends Context {
    /** Makes the context, for {@link SSLContext#getInstance}. */
    public Tls13() {
      super("TLSv1.3");
    }
  }

  /** The context with the JDK's authorities that {@link SSLContext#getDefault} returns. */
  public static final class Default extends Context {
    /**
     * Makes the context, for {@link SSLContext#getDefault}.
     *
     * @throws GeneralSecurityException the JDK's
     */
    public Default() throws GeneralSecurityException {
      String keys = System.getProperty("javax.net.ssl.keyStore", "");
      if (keys.isEmpty()) {
        engineInit(null, null, null);
      } else {
        use(SSLContext.getInstance("Default", "SunJSSE"), null);
      }
    }
  }

  final void use(SSLContext context, Trust of) {
    jdk = context;
    trust = of;
  }

  @Override
  protected void engineInit(KeyManager[] keys, TrustManager[] trusted, SecureRandom random)
      throws KeyManagementException {
    try {
      SSLContext context = SSLContext.getInstance(protocol, "SunJSSE");
      TrustManager[] managers = trusted;
      if (managers == null) {
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init((KeyStore) null);
        managers = factory.getTrustManagers();
      }
      context.init(keys, managers, random);
      // A program with a client certificate connects itself: the manager does not have its key.
      boolean hasKeys = keys != null && keys.length > 0;
      use(context, hasKeys ? null : Trust.of(managers));
    } catch (KeyManagementException error) {
      throw error;
    } catch (GeneralSecurityException error) {
      throw new KeyManagementException(error);
    }
  }

  @Override
  protected SSLSocketFactory engineGetSocketFactory() {
    return trust == null ? jdk.getSocketFactory() : new Sockets(jdk, trust);
  }

  @Override
  protected SSLServerSocketFactory engineGetServerSocketFactory() {
    return jdk.getServerSocketFactory();
  }

  @Override
  protected SSLEngine engineCreateSSLEngine() {
    return jdk.createSSLEngine();
  }

  @Override
  protected SSLEngine engineCreateSSLEngine(String host, int port) {
    boolean mayBeManaged = trust != null && host != null && port > 0;
    if (mayBeManaged && Proxies.areBetween(host, port)) {
      Wanted.explain(host, port, "through a proxy");
      mayBeManaged = false;
    }
    return mayBeManaged ? new ManagedEngine(jdk, trust, host, port) : jdk.createSSLEngine(host, port);
  }

  @Override
  protected SSLSessionContext engineGetServerSessionContext() {
    return jdk.getServerSessionContext();
  }

  @Override
  protected SSLSessionContext engineGetClientSessionContext() {
    return jdk.getClientSessionContext();
  }

  @Override
  protected SSLParameters engineGetDefaultSSLParameters() {
    return jdk.getDefaultSSLParameters();
  }

  @Override
  protected SSLParameters engineGetSupportedSSLParameters() {
    return jdk.getSupportedSSLParameters();
  }
}
