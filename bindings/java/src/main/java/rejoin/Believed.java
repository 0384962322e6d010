package rejoin;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.UserPrincipal;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import jdk.net.ExtendedSocketOptions;

/**
 * The users whom this program believes: its own, root, and, as managers, the one whom root names in {@code
 * /etc/rejoin/client.toml}. The kernel says which user listens.
 */
final class Believed {
  private static final Path SETTINGS = Path.of("/etc/rejoin/client.toml");
  private static final Pattern USER = Pattern.compile("(?:\\s|#.*)*user\\s*=\\s*\"([^\"\n]+)\"(?:\\s|#.*)*");
  private static final Set<PosixFilePermission> OTHERS_WRITE =
      Set.of(PosixFilePermission.GROUP_WRITE, PosixFilePermission.OTHERS_WRITE);
  /** Of a folder: each user removes only their own files. */
  private static final int STICKY = 01000;

  private Believed() {}

  /**
   * Checks who listens at a connected channel, and the folder of its path.
   *
   * @throws IOException if this program does not believe them
   */
  static void check(SocketChannel channel, Path place) throws IOException {
    UserPrincipal root = user("root");
    UserPrincipal own = own();
    UserPrincipal peer = peer(channel);
    // The settings are read only if they decide.
    checkPeer(channel, place, peer.equals(root) || peer.equals(own) ? null : named(place));
    Path folder = place.toAbsolutePath().getParent();
    PosixFileAttributes found = Files.readAttributes(folder, PosixFileAttributes.class);
    boolean isSticky = ((Integer) Files.getAttribute(folder, "unix:mode") & STICKY) != 0;
    boolean isClosed = isSticky || Collections.disjoint(found.permissions(), OTHERS_WRITE);
    if (!isClosed || !List.of(root, own, peer).contains(found.owner())) {
      throw refused(place, "other users may write to " + folder);
    }
  }

  /**
   * Checks who listens at a connected channel: this user, root, or one more.
   *
   * @param more a user, or null
   * @throws IOException if it is somebody else
   */
  static void checkPeer(SocketChannel channel, Path place, UserPrincipal more) throws IOException {
    UserPrincipal peer = peer(channel);
    if (!peer.equals(user("root")) && (peer.equals(nobody()) || (!peer.equals(own()) && !peer.equals(more)))) {
      throw refused(place, "user " + peer.getName() + " listens there, and not this user or root");
    }
  }

  private static UserPrincipal peer(SocketChannel channel) throws IOException {
    return channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
  }

  private static UserPrincipal own() throws IOException {
    return Files.getOwner(Path.of("/proc/self"));
  }

  /** The user that all have who are not in the namespace of this process. */
  private static UserPrincipal nobody() throws IOException {
    return user(Files.readString(Path.of("/proc/sys/kernel/overflowuid")).strip());
  }

  /** The user in the settings, which root alone may write, or null. */
  private static UserPrincipal named(Path place) throws IOException {
    PosixFileAttributes found;
    try {
      found = Files.readAttributes(SETTINGS, PosixFileAttributes.class);
    } catch (NoSuchFileException absent) {
      return null;
    }
    if (!found.owner().equals(user("root")) || !Collections.disjoint(found.permissions(), OTHERS_WRITE)) {
      throw refused(place, SETTINGS + ": only root may own it and write to it");
    }
    Matcher said = USER.matcher(Files.readString(SETTINGS));
    if (!said.matches()) {
      throw refused(place, SETTINGS + ": write user = \"NAME\"");
    }
    return user(said.group(1));
  }

  /** The user of a name or a number. */
  static UserPrincipal user(String name) throws IOException {
    return FileSystems.getDefault().getUserPrincipalLookupService().lookupPrincipalByName(name);
  }

  private static IOException refused(Path place, String why) {
    return new IOException(place + " is not believed: " + why);
  }
}
