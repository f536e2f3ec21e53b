import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;

/** HiveMQ CE as a part of tests, for Java 11 or newer: runs on the folders that are given until it is ended. */
public class HiveMq {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
                .withConfigurationFolder(folder.resolve("conf"))
                .withDataFolder(folder.resolve("data"))
                .withExtensionsFolder(folder.resolve("extensions"))
                .build();
        broker.start().join();
        new CountDownLatch(1).await();
    }
}
