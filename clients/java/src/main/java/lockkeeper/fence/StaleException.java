package lockkeeper.fence;

/** The refusal of a token: a larger one has been seen. */
public final class StaleException extends FenceException {
    private static final long serialVersionUID = 1;

    /** The resource. */
    public final String resource;
    /** The token that was refused. */
    public final long token;
    /** The largest one seen. */
    public final long newest;

    StaleException(String resource, long token, long newest) {
        super("token " + token + " for " + Names.quote(resource) + " is stale: " + newest + " has been seen");
        this.resource = resource;
        this.token = token;
        this.newest = newest;
    }
}
