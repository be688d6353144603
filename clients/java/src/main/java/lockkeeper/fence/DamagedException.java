package lockkeeper.fence;

/** The remembered token cannot be read. Nothing is accepted until an operator has looked at it. */
public final class DamagedException extends FenceException {
    private static final long serialVersionUID = 1;

    DamagedException(String message) {
        super("damaged: " + message);
    }
}
