package lockkeeper.fence;

import java.io.IOException;

/** An error of a fence: the token was not accepted, and nothing was written. */
public class FenceException extends IOException {
    private static final long serialVersionUID = 1;

    FenceException(String message) {
        super(message);
    }
}
