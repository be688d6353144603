import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.ServiceCacheListener;
import org.apache.curator.x.discovery.strategies.RoundRobinStrategy;

/** curator-x-discovery: what one client registers others find, until it goes. */
final class Discovery {
    private Discovery() {}

    static void add(Suite s) {
        s.check("Discovery/registers and finds", Discovery::finds);
        s.check("Discovery/an instance goes with its client", Discovery::clientClosed);
        s.check("Discovery/an instance comes back after its session expired", Discovery::expired);
        s.check("Discovery/ServiceCache", Discovery::cache);
        s.check("Discovery/ServiceProvider", Discovery::provider);
    }

    private static ServiceDiscovery<String> discovery(Bench b, CuratorFramework c, List<ServiceInstance<String>> mine)
            throws Exception {
        ServiceDiscovery<String> d = b.keep(ServiceDiscoveryBuilder.builder(String.class)
                .client(c).basePath(b.path).watchInstances(true).build());
        d.start();
        for (ServiceInstance<String> i : mine) {
            d.registerService(i);
        }
        return d;
    }

    private static ServiceInstance<String> instance(String id, String payload) throws Exception {
        return ServiceInstance.<String>builder().name("shop").id(id).address("host-" + id).port(80).payload(payload)
                .uriSpec(new UriSpec("{scheme}://{address}:{port}")).build();
    }

    private static TreeSet<String> ids(Collection<ServiceInstance<String>> instances) {
        return instances.stream().map(ServiceInstance::getId).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void awaitIds(ServiceDiscovery<String> d, String... want) throws Exception {
        Bench.awaitEqual("the instances", new TreeSet<>(List.of(want)), () -> ids(d.queryForInstances("shop")));
    }

    private static void finds(Bench b) throws Exception {
        ServiceInstance<String> a = instance("a", "payload");
        ServiceDiscovery<String> one = discovery(b, b.client(), List.of(a));
        ServiceDiscovery<String> two = discovery(b, b.client(), List.of(instance("b", "")));
        awaitIds(two, "a", "b");
        Bench.equal("the names", "[shop]", two.queryForNames().toString());
        ServiceInstance<String> found = two.queryForInstance("shop", "a");
        Bench.equal("the payload", "payload", found.getPayload());
        Bench.equal("the address", "http://host-a:80", found.buildUriSpec());
        one.updateService(instance("a", "another"));
        Bench.awaitEqual("the payload", "another", () -> two.queryForInstance("shop", "a").getPayload());
        one.unregisterService(a);
        awaitIds(two, "b");
    }

    private static void clientClosed(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework second = b.client();
        ServiceInstance<String> stays = ServiceInstance.<String>builder().name("shop").id("static")
                .serviceType(ServiceType.STATIC).build();
        discovery(b, first, List.of(instance("a", ""), stays));
        ServiceDiscovery<String> two = discovery(b, second, List.of());
        awaitIds(two, "a", "static");
        Bench.equal("the owner", Bench.session(first), Bench.owner(second, b.path + "/shop/a"));
        first.close();
        awaitIds(two, "static");
    }

    private static void expired(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework second = b.client();
        discovery(b, first, List.of(instance("a", "payload")));
        ServiceDiscovery<String> two = discovery(b, second, List.of());
        awaitIds(two, "a");
        Bench.expire(first);
        Bench.awaitEqual("the owner", Bench.session(first), () -> Bench.owner(second, b.path + "/shop/a"));
        Bench.equal("the payload", "payload", two.queryForInstance("shop", "a").getPayload());
    }

    private static void cache(Bench b) throws Exception {
        CuratorFramework second = b.client();
        ServiceDiscovery<String> two = discovery(b, second, List.of());
        ServiceCache<String> cache = b.keep(two.serviceCacheBuilder().name("shop").build());
        Events events = new Events();
        cache.addListener(new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                events.add("" + ids(cache.getInstances()));
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState state) {}
        });
        cache.start();
        CuratorFramework first = b.client();
        ServiceDiscovery<String> one = discovery(b, first, List.of(instance("a", "1")));
        events.until("[a]");
        one.registerService(instance("b", ""));
        events.until("[a, b]");
        one.updateService(instance("a", "2"));
        Bench.awaitEqual("the payloads", new TreeSet<>(List.of("a 2", "b ")), () -> cache.getInstances().stream()
                .map(i -> i.getId() + " " + i.getPayload()).collect(Collectors.toCollection(TreeSet::new)));
        one.unregisterService(instance("a", "2"));
        events.until("[b]");
        first.close();
        events.until("[]");
    }

    private static void provider(Bench b) throws Exception {
        ServiceDiscovery<String> one = discovery(b, b.client(), List.of(instance("a", ""), instance("b", "")));
        ServiceDiscovery<String> two = discovery(b, b.client(), List.of());
        ServiceProvider<String> provider = b.keep(two.serviceProviderBuilder().serviceName("shop")
                .providerStrategy(new RoundRobinStrategy<>()).build());
        provider.start();
        Bench.awaitEqual("the instances", "[a, b]", () -> "" + ids(provider.getAllInstances()));
        TreeSet<String> used = new TreeSet<>();
        for (int i = 0; i < 4; i++) {
            used.add(provider.getInstance().getId());
        }
        Bench.equal("the ones in use", "[a, b]", "" + used);
        one.unregisterService(instance("a", ""));
        Bench.awaitEqual("the instances", "[b]", () -> "" + ids(provider.getAllInstances()));
        Bench.equal("the one in use", "b", provider.getInstance().getId());
    }
}
