package rejoin;

import java.util.List;
import java.util.function.BiFunction;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;

/** The settings that a program makes on an engine, kept by one of the JDK's. The engine's work is in the subclass. */
abstract class WantedEngine extends SSLEngine {
  /** An engine of the JDK's for the same host and port, which can also do the whole connection. */
  final SSLEngine direct;

  WantedEngine(SSLEngine direct) {
    super(direct.getPeerHost(), direct.getPeerPort());
    this.direct = direct;
  }

  @Override
  public SSLParameters getSSLParameters() {
    return direct.getSSLParameters();
  }

  @Override
  public void setSSLParameters(SSLParameters parameters) {
    direct.setSSLParameters(parameters);
  }

  @Override
  public String[] getSupportedCipherSuites() {
    return direct.getSupportedCipherSuites();
  }

  @Override
  public String[] getEnabledCipherSuites() {
    return direct.getEnabledCipherSuites();
  }

  @Override
  public void setEnabledCipherSuites(String[] suites) {
    direct.setEnabledCipherSuites(suites);
  }

  @Override
  public String[] getSupportedProtocols() {
    return direct.getSupportedProtocols();
  }

  @Override
  public String[] getEnabledProtocols() {
    return direct.getEnabledProtocols();
  }

  @Override
  public void setEnabledProtocols(String[] protocols) {
    direct.setEnabledProtocols(protocols);
  }

  @Override
  public boolean getUseClientMode() {
    return direct.getUseClientMode();
  }

  @Override
  public void setNeedClientAuth(boolean need) {
    direct.setNeedClientAuth(need);
  }

  @Override
  public boolean getNeedClientAuth() {
    return direct.getNeedClientAuth();
  }

  @Override
  public void setWantClientAuth(boolean want) {
    direct.setWantClientAuth(want);
  }

  @Override
  public boolean getWantClientAuth() {
    return direct.getWantClientAuth();
  }

  @Override
  public void setEnableSessionCreation(boolean may) {
    direct.setEnableSessionCreation(may);
  }

  @Override
  public boolean getEnableSessionCreation() {
    return direct.getEnableSessionCreation();
  }

  @Override
  public void setHandshakeApplicationProtocolSelector(BiFunction<SSLEngine, List<String>, String> selector) {
    direct.setHandshakeApplicationProtocolSelector(selector);
  }

  @Override
  public BiFunction<SSLEngine, List<String>, String> getHandshakeApplicationProtocolSelector() {
    return direct.getHandshakeApplicationProtocolSelector();
  }
}
